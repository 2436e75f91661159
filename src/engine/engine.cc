#include "engine/engine.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "engine/engine_state.h"
#include "engine/rank_setup.h"
#include "engine/scheduler_settings.h"

namespace hocket {
namespace {

// Short, so that a question asked again finds the rank that knows it; in all a million tokens.
constexpr int kRoutingBlockTokens = 16;
constexpr size_t kRoutingBlocks = 1 << 16;

// Room to tell of all pages at once and of as many changes meanwhile, within reason.
size_t kv_event_capacity(int num_pages) {
  return std::clamp<size_t>(2 * static_cast<size_t>(num_pages) + 64, 4096, 1 << 17);
}

Result<void> check_input(const RequestInput& input, const EngineInfo& info) {
  if (input.prompt.empty())
    return fail(error(ErrorCode::invalid_request, "the prompt has no tokens").with_param("prompt"));
  const int vocab_size = info.model.vocab_size;
  const auto outside = [&](TokenId token) {
    return value(token) < 0 || value(token) >= vocab_size;
  };
  const auto refuse = [&](TokenId token, const char* param) {
    return fail(error(ErrorCode::invalid_request, "token {} is outside the vocabulary of {}",
                      value(token), vocab_size)
                    .with_param(param));
  };
  for (const TokenId token : input.prompt)
    if (outside(token)) return refuse(token, "prompt");
  for (const auto& [token, bias] : input.sampling.logit_bias)
    if (outside(token)) return refuse(token, "logit_bias");
  for (const TokenId token : input.sampling.allowed_ids)
    if (outside(token)) return refuse(token, "allowed_token_ids");
  const int max_new = input.sampling.max_new_tokens;
  if (max_new < 1)
    return fail(
        error(ErrorCode::invalid_request, "max_new_tokens is {}, must be at least 1", max_new)
            .with_param("max_tokens"));
  const auto total = static_cast<int64_t>(input.prompt.size()) + max_new;
  if (total > info.context_length)
    return fail(error(ErrorCode::context_length_exceeded,
                      "the prompt has {} tokens and {} more are asked for, but the context is {}",
                      input.prompt.size(), max_new, info.context_length)
                    .with_fix("a shorter prompt or a smaller max_tokens"));
  return {};
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  stop();
}

Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  const int log_interval = options.settings.scheduler.decode_log_interval;
  if (log_interval < 1)
    return fail(ErrorCode::bad_value, "--decode-log-interval is {}, must be at least 1",
                log_interval);
  HOCKET_TRY_VOID(check_parallel(options.settings));
  auto state = std::make_unique<State>();
  HOCKET_TRY_VOID(state->load(options));
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Result<void> Engine::State::load(Options& options) {
  const ServerSettings& settings = options.settings;
  const int num_ranks = settings.parallel.ep_size;
  max_queued_requests = settings.memory.max_queued_requests;
  priorities = settings.scheduler.enable_priority_scheduling;
  std::vector<std::unique_ptr<Runner>> runners;
  if (num_ranks == 1) {
    HOCKET_TRY(runners.emplace_back(), Runner::create({.settings = settings,
                                                       .progress = std::move(options.progress),
                                                       .tokenizer_eos = options.tokenizer_eos}));
  } else {
    hub.emplace(num_ranks, link_model(settings.parallel), LoopbackHub::Time::real);
    std::vector<RankSeat> seats;
    std::vector<Transport*> who;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ends.push_back(hub->join(rank));
      who.push_back(ends.back().get());
      seats.push_back({.rank = rank,
                       .machine = {},
                       .transport = who.back(),
                       .abort = &fate.flag(),
                       .stall_timeout = options.stall_timeout});
    }
    fate.bind(std::move(who));
    HOCKET_TRY(const RoutingPolicy policy, parse_routing_policy(settings.parallel.dp_routing));
    router.emplace(num_ranks, RequestRouter::Options{.policy = policy,
                                                     .block_tokens = kRoutingBlockTokens,
                                                     .max_blocks = kRoutingBlocks});
    HOCKET_TRY(runners, load_ranks({.settings = settings,
                                    .progress = std::move(options.progress),
                                    .tokenizer_eos = options.tokenizer_eos,
                                    .seats = seats}));
  }
  info = join_infos(runners);
  if (num_ranks > 1) info.network = network_name(settings.parallel);
  for (std::unique_ptr<Runner>& runner : runners)
    HOCKET_TRY_VOID(add_rank(std::move(runner), options));
  return {};
}

Result<void> Engine::State::add_rank(std::unique_ptr<Runner> runner, const Options& options) {
  HOCKET_TRY(SchedulerOptions scheduler,
             scheduler_options(options.settings, runner->plan(), runner->info()));
  std::unique_ptr<KvEventChannel> events;
  if (options.settings.scheduler.kv_events)
    events = std::make_unique<KvEventChannel>(kv_event_capacity(scheduler.num_pages));
  if (const ModelConfig& model = runner->info().model; !experts && model.moe.num_experts > 0)
    experts.emplace(model.num_layers, runner->placement(), 0);
  ranks.push_back(std::make_unique<Rank>(
      Rank::Parts{.runner = std::move(runner),
                  .kv_events = std::move(events),
                  .experts = experts ? &*experts : nullptr,
                  .scheduler = std::move(scheduler),
                  .log_interval = options.settings.scheduler.decode_log_interval,
                  .clock = options.clock,
                  .transport = ends.empty() ? nullptr : ends[ranks.size()].get(),
                  .fate = &fate}));
  return {};
}

std::vector<RankLoad> Engine::State::loads() const {
  std::vector<RankLoad> all;
  for (const auto& rank : ranks) all.push_back(rank->load());
  return all;
}

// Who does not hold the request passes it over.
template <class Make>
void Engine::State::tell_all(Make&& command) {
  for (const auto& rank : ranks) rank->push_control(command());
}

const EngineInfo& Engine::info() const {
  return state_->info;
}

KvEventChannel* Engine::kv_events() {
  return state_->ranks.front()->kv_events.get();
}

RequestId Engine::next_request_id() {
  static std::atomic<uint64_t> next{1};
  return RequestId{next++};
}

void Engine::start(Outbox& outbox) {
  HOCKET_CHECK(!state_->threaded.load());
  state_->threaded = true;
  for (const auto& rank : state_->ranks) rank->start(outbox);
}

void Engine::stop() {
  if (!state_->threaded) return;
  state_->accepting = false;
  for (const auto& rank : state_->ranks) rank->ask_to_stop();
  for (const auto& rank : state_->ranks) rank->join();
}

void Engine::stop_accepting() {
  state_->accepting = false;
}

Result<void> Engine::submit(RequestInput input) {
  State& s = *state_;
  if (!s.accepting)
    return fail(error(ErrorCode::shutting_down, "the server is shutting down")
                    .with_fix("ask another server, or again when this one is back"));
  if (auto lost = s.fate.lost()) return fail(*std::move(lost));
  HOCKET_TRY_VOID(check_input(input, info()));
  int queued = 0;
  for (const auto& rank : s.ranks) queued += rank->num_handed_over + rank->num_waiting;
  // With priorities the scheduler decides who has to go.
  if (queued >= s.max_queued_requests && !s.priorities)
    return fail(error(ErrorCode::queue_full, "{} requests are waiting already, the limit is {}",
                      queued, s.max_queued_requests)
                    .with_fix("ask again later, or raise --max-queued-requests"));
  int chosen = 0;
  if (s.router) {
    std::lock_guard lock(s.router_mutex);
    HOCKET_TRY(chosen, s.router->choose(input.cache_namespace, input.prompt, s.loads()));
  }
  if (!s.ranks[static_cast<size_t>(chosen)]->submit(input))
    return fail(
        error(ErrorCode::queue_full, "the engine's mailbox is full").with_fix("ask again later"));
  return {};
}

void Engine::abort(RequestId id) {
  state_->tell_all([&] {
    return AbortRequest{.id = id,
                        .reason = FinishReason::abort,
                        .why = error(ErrorCode::invalid_request, "the request was aborted")};
  });
}

void Engine::complete(RequestId id) {
  state_->tell_all([&] { return AbortRequest{.id = id, .reason = FinishReason::stop, .why = {}}; });
}

void Engine::abort_all() {
  state_->tell_all(
      [] { return AbortAll{error(ErrorCode::invalid_request, "all requests were aborted")}; });
}

bool Engine::flush_cache() {
  State& s = *state_;
  // So that no rank forgets while another goes on, but for who comes in this moment.
  const auto has_requests = [](const RankLoad& load) { return load.num_requests > 0; };
  if (s.ranks.size() > 1 && std::ranges::any_of(s.loads(), has_requests)) return false;
  std::vector<std::future<bool>> answers;
  s.tell_all([&] {
    FlushCache flush;
    answers.push_back(flush.answer.get_future());
    return flush;
  });
  if (!s.threaded)
    for (const auto& rank : s.ranks) rank->intake();
  bool flushed = true;
  for (size_t i = 0; i < answers.size(); ++i) {
    try {
      const bool here = answers[i].get();
      flushed &= here;
      if (!here || !s.router) continue;
      std::lock_guard lock(s.router_mutex);
      s.router->forget(static_cast<int>(i));
    } catch (const std::future_error&) {
      flushed = false;  // the engine stopped before it came to it
    }
  }
  return flushed;
}

EngineStats Engine::stats() const {
  std::vector<RankStats> ranks;
  for (const auto& rank : state_->ranks) ranks.push_back(rank->read_stats());
  EngineStats all = add_up(std::move(ranks));
  if (state_->experts) all.experts = state_->experts->balance();
  all.lost = state_->fate.lost();
  return all;
}

std::vector<RankLoad> Engine::loads() const {
  return state_->loads();
}

ExpertStats* Engine::expert_stats() {
  return state_->experts ? &*state_->experts : nullptr;
}

ControlPlane* Engine::cluster() {
  return nullptr;
}

std::optional<Error> Engine::failure() const {
  return std::nullopt;
}

bool Engine::step(Outbox& outbox) {
  HOCKET_CHECK(!state_->threaded.load());
  HOCKET_CHECK(state_->ranks.size() == 1u);
  return state_->ranks.front()->step(outbox);
}

}  // namespace hocket
