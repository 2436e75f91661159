#include "engine/engine.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "compute/weights/hf_config.h"
#include "engine/engine_state.h"
#include "engine/input_check.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/rank_setup.h"
#include "engine/ranks/cluster_network.h"
#include "engine/ranks/identity.h"

namespace hocket {
namespace {

// Blocks are short, so that a repeated prompt finds the rank that has it cached; 1 M tokens in all.
constexpr int kRoutingBlockTokens = 16;
constexpr size_t kRoutingBlocks = 1 << 16;

// Leaves room for one event per page and as many changes meanwhile, within limits.
size_t kv_event_capacity(int num_pages) {
  return std::clamp<size_t>(2 * static_cast<size_t>(num_pages) + 64, 4096, 1 << 17);
}

// Ranks that meet at a loopback address must not be reachable from other hosts.
UcxOptions ucx_of(const ParallelSettings& parallel, const ControlPlane& control) {
  UcxOptions ucx{.tls = parallel.ucx_tls, .devices = parallel.ucx_net_devices};
  const std::string host = control.local_host();
  if (ucx.devices.empty() && (host.starts_with("127.") || host == "::1")) ucx.devices = "lo";
  return ucx;
}

constexpr Duration kFlushWait = std::chrono::seconds(5);  // a rank answers after its step

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
  max_queued_requests = options.settings.memory.max_queued_requests;
  priorities = options.settings.scheduler.enable_priority_scheduling;
  HOCKET_TRY_VOID(start_grammars(options));
  HOCKET_TRY_VOID(options.cluster                         ? load_one_of_cluster(options)
                  : options.settings.parallel.ep_size > 1 ? load_together(options)
                                                          : load_alone(options));
  info.grammar_backend = grammars ? "llguidance" : "none";
  info.why_no_grammar = why_no_grammar;
  return {};
}

// Runs first, so that the vocabulary is made while the weights are loaded.
Result<void> Engine::State::start_grammars(const Options& options) {
  const std::string& backend = options.settings.model.grammar_backend;
  if (backend != "llguidance" && backend != "none")
    return fail(
        error(ErrorCode::bad_value, "--grammar-backend {} is not one of llguidance, none", backend)
            .with_param("grammar-backend"));
  if (!options.grammars)
    why_no_grammar = "the model folder has no tokenizer.json";
  else if (backend == "none")
    why_no_grammar = "it was started with --grammar-backend none";
  if (!why_no_grammar.empty()) return {};
  HOCKET_TRY(const ModelConfig model, read_hf_config(options.settings.model.model_path));
  why_no_grammar = tell_tokenizer_misfit(options.tokenizer_size, model.vocab_size);
  if (!why_no_grammar.empty()) return {};
  std::vector<TokenId> ends = model.eos_ids;
  if (options.tokenizer_eos && std::ranges::find(ends, *options.tokenizer_eos) == ends.end())
    ends.push_back(*options.tokenizer_eos);
  grammars =
      std::make_unique<GrammarCompiler>(GrammarCompiler::Options{.source = *options.grammars,
                                                                 .num_logits = model.vocab_size,
                                                                 .end_ids = std::move(ends),
                                                                 .trials = options.grammar_trials});
  return {};
}

Result<void> Engine::State::load_alone(Options& options) {
  HOCKET_TRY(auto runner, Runner::create({.settings = options.settings,
                                          .progress = std::move(options.progress),
                                          .tokenizer_eos = options.tokenizer_eos}));
  info = runner->info();
  return add_rank(std::move(runner), options);
}

Result<void> Engine::State::load_together(Options& options) {
  const ParallelSettings& parallel = options.settings.parallel;
  HOCKET_TRY(const RoutingPolicy policy, parse_routing_policy(parallel.dp_routing));
  router.emplace(parallel.ep_size, RequestRouter::Options{.policy = policy,
                                                          .block_tokens = kRoutingBlockTokens,
                                                          .max_blocks = kRoutingBlocks});
  HOCKET_TRY(auto runners, load_ranks({.settings = options.settings,
                                       .progress = std::move(options.progress),
                                       .tokenizer_eos = options.tokenizer_eos}));
  info = join_infos(runners);
  info.network = network_name(parallel);
  hub.emplace(parallel.ep_size, link_model(parallel), LoopbackHub::Time::real);
  std::vector<Transport*> ends;
  for (auto& runner : runners) {
    auto network = std::make_unique<LoopbackNetwork>(hub->join(static_cast<int>(ends.size())), fate,
                                                     info.network);
    ends.push_back(&network->end());
    HOCKET_TRY_VOID(add_rank(std::move(runner), options, std::move(network)));
  }
  fate.bind(std::move(ends));
  return {};
}

// Joins the other ranks before loading: a rank that does not fit is refused early, and all ranks
// see how far the others have loaded.
Result<void> Engine::State::load_one_of_cluster(Options& options) {
  const ClusterLaunch& cluster = *options.cluster;
  // Fails before anything is loaded if UCX is missing.
  HOCKET_TRY_VOID(ucx_version());
  HOCKET_TRY(Identity self, make_identity(options.settings, cluster.plan));
  HOCKET_TRY(control, ControlPlane::join(cluster.control, std::move(self)));
  if (cluster.joined) HOCKET_TRY_VOID(cluster.joined(*control));
  HOCKET_TRY(Machine machine, machine_for(options.settings.compute));
  machine.memory_bytes /= cluster.plan.ranks_per_node;
  machine.memory_available_bytes /= cluster.plan.ranks_per_node;
  const RankSeat seat{.rank = cluster.plan.rank,
                      .num_ranks = cluster.plan.num_ranks,
                      .machine = std::move(machine)};
  const auto tell = [&](const LoadProgress& now) {
    control->pulse().progress(static_cast<uint64_t>(now.bytes_done),
                              static_cast<uint64_t>(now.bytes_total));
    if (options.progress) options.progress(now);
  };
  HOCKET_TRY(auto runner, Runner::create({.settings = options.settings,
                                          .progress = tell,
                                          .tokenizer_eos = options.tokenizer_eos,
                                          .seat = &seat}));
  HOCKET_TRY(auto network,
             ClusterNetwork::create(*control, {.ucx = ucx_of(options.settings.parallel, *control),
                                               .terms = runner->terms()}));
  info = runner->info();
  info.network = network->describe();
  return add_rank(std::move(runner), options, std::move(network));
}

Result<void> Engine::State::add_rank(std::unique_ptr<Runner> runner, const Options& options,
                                     std::unique_ptr<RankNetwork> network) {
  HOCKET_TRY(SchedulerOptions scheduler,
             scheduler_options(options.settings, runner->plan(), runner->info()));
  const ParallelSettings& parallel = options.settings.parallel;
  std::unique_ptr<KvEventChannel> events;
  if (options.settings.scheduler.kv_events)
    events = std::make_unique<KvEventChannel>(kv_event_capacity(scheduler.num_pages));
  if (const ModelConfig& model = runner->info().model; !experts && model.moe.num_experts > 0)
    experts.emplace(model.num_layers, runner->placement(), network ? network->rank() : 0);
  if (!forecast) {
    HOCKET_TRY(forecast, forecast_stages(*runner, parallel));
  }
  const LayerCounts layers = forecast->layers({});
  if (!profiler) make_profiler(*runner, network.get());
  ranks.push_back(std::make_unique<RankLoop>(
      RankParts{.runner = std::move(runner),
                .kv_events = std::move(events),
                .experts = experts ? &*experts : nullptr,
                .scheduler = std::move(scheduler),
                .log_interval = options.settings.scheduler.decode_log_interval,
                .clock = options.clock,
                .grammars = grammars.get(),
                .network = std::move(network),
                .stall_timeout = options.stall_timeout,
                .max_delayed_passes =
                    parallel.enable_prefill_delayer ? parallel.prefill_delayer_max_passes : 0,
                .prior = forecast,
                .layers = layers,
                .profiler = &*profiler,
                .recent = &*recent,
                .farewell = from_seconds(options.settings.http.shutdown_timeout_s)}));
  return {};
}

// Records all ranks of this process: the whole service, or one rank of it.
void Engine::State::make_profiler(const Runner& runner, const RankNetwork* network) {
  const int num_ranks = network != nullptr ? network->num_ranks() : 1;
  const Ledger::Limits limits{.num_layers = runner.info().model.num_layers, .num_ranks = num_ranks};
  orders = runner.overlap().orders;
  profiler.emplace(Profiler::Options{.first_rank = network != nullptr ? network->rank() : 0,
                                     .num_here = control ? 1 : num_ranks,
                                     .num_ranks = num_ranks,
                                     .model = runner.info().served_model_name,
                                     .orders = orders.get(),
                                     .spans_per_step = Ledger::most_spans(limits)});
  recent.emplace(RecentSteps::Options{.first_rank = network != nullptr ? network->rank() : 0,
                                      .num_here = control ? 1 : num_ranks,
                                      .num_ranks = num_ranks,
                                      .model = runner.info().served_model_name,
                                      .orders = orders.get(),
                                      .spans_per_step = Ledger::most_spans(limits)});
}

// Returns the loads that ranks in other processes sent last.
std::vector<RankLoad> Engine::State::loads() const {
  std::vector<RankLoad> all;
  if (control) {
    const RankLoop& here = *ranks.front();
    all = here.heard_loads();
    all[static_cast<size_t>(here.rank())] = here.load();
    return all;
  }
  for (const auto& rank : ranks) all.push_back(rank->load());
  return all;
}

// Returns an error also if a rank is about to leave, so that it gets no request that it would cut.
std::optional<Error> Engine::State::lost() const {
  const RankLoop& rank = *ranks.front();
  if (auto lost = rank.lost()) return lost;
  const int leaver = rank.leaver();
  if (leaver < 0 || !control) return std::nullopt;
  return error(ErrorCode::lost_rank, "{} is shutting down",
               name_of(control->view().members[static_cast<size_t>(leaver)].identity));
}

// A rank that does not hold the request ignores the command.
template <class Make>
void Engine::State::tell_all(Make&& command) {
  for (const auto& rank : ranks) rank->push_control(command());
}

const EngineInfo& Engine::info() const {
  return state_->info;
}

KvEventChannel* Engine::kv_events() {
  return state_->ranks.front()->kv_events();
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
  if (auto lost = s.lost()) return fail(*std::move(lost));
  HOCKET_TRY_VOID(check_input(input, info()));
  int queued = 0;
  for (const auto& rank : s.ranks) queued += rank->num_queued();
  HOCKET_TRY_VOID(check_queue(input, queued, s.max_queued_requests, s.priorities));
  int chosen = 0;
  if (s.router) {
    MutexLock lock(s.router_mutex);
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
  // Checks first, so that no rank flushes while another runs (unless a request comes just here).
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
  const auto deadline = std::chrono::steady_clock::now() + kFlushWait;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].wait_until(deadline) != std::future_status::ready) {
      log::warning("flush: rank {} has not answered for {:.0f} s", i, to_seconds(kFlushWait));
      flushed = false;
      continue;
    }
    try {
      const bool here = answers[i].get();
      flushed &= here;
      if (!here || !s.router) continue;
      MutexLock lock(s.router_mutex);
      s.router->forget(static_cast<int>(i));
    } catch (const std::future_error&) {
      flushed = false;  // the engine stopped before it answered
    }
  }
  return flushed;
}

EngineStats Engine::stats() const {
  std::vector<RankStats> ranks;
  for (const auto& rank : state_->ranks) ranks.push_back(rank->stats());
  EngineStats all = add_up(std::move(ranks));
  if (state_->experts) all.experts = state_->experts->balance();
  if (state_->grammars) all.grammars = state_->grammars->stats();
  all.lost = state_->lost();
  return all;
}

std::vector<RankLoad> Engine::loads() const {
  return state_->loads();
}

OverlapView Engine::overlap() const {
  OverlapView view{.choice = info().overlap};
  for (const auto& rank : state_->ranks)
    view.ranks.push_back({.rank = rank->rank(), .stats = rank->overlap().stats()});
  view.planner = state_->ranks.front()->overlap().planner_state();
  return view;
}

Profiler& Engine::profiler() {
  return *state_->profiler;
}

const RecentSteps& Engine::recent_steps() const {
  return *state_->recent;
}

std::vector<RequestAt> Engine::request_snapshots() const {
  std::vector<RequestAt> all;
  for (const auto& rank : state_->ranks)
    for (const RequestSnapshot& seen : rank->requests())
      all.push_back({.rank = rank->rank(), .seen = seen});
  return all;
}

ExpertStats* Engine::expert_stats() {
  return state_->experts ? &*state_->experts : nullptr;
}

ControlPlane* Engine::cluster() {
  return state_->control.get();
}

std::optional<Error> Engine::failure() const {
  return state_->ranks.front()->failure();
}

bool Engine::step(Outbox& outbox) {
  HOCKET_CHECK(!state_->threaded.load());
  HOCKET_CHECK(state_->ranks.size() == 1u);
  return state_->ranks.front()->step(outbox);
}

}  // namespace hocket
