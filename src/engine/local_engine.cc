#include "engine/local_engine.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "core/queue_limits.h"
#include "engine/input_check.h"
#include "engine/lockstep/cluster_network.h"
#include "engine/lockstep/identity.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/rank_experts.h"
#include "engine/rank_setup.h"
#include "engine/tier/cache_tier_setup.h"

namespace hocket {
namespace {

// Leaves room for one event per page and as many changes meanwhile, within limits.
size_t kv_event_capacity(int num_pages) {
  return std::clamp<size_t>(2 * static_cast<size_t>(num_pages) + 64, 4096, 1 << 17);
}

// Ranks that connect at a loopback address must not be reachable from other hosts.
UcxOptions ucx_of(const ParallelSettings& parallel, const ControlPlane& control) {
  UcxOptions ucx{.tls = parallel.ucx_tls, .devices = parallel.ucx_net_devices};
  const std::string host = control.local_host();
  if (ucx.devices.empty() && (host.starts_with("127.") || host == "::1")) ucx.devices = "lo";
  return ucx;
}

constexpr Duration kFlushWait = std::chrono::seconds(5);  // a rank answers after its step

// Prompts of peers are requests like others.
PrefillCalls prefill_calls(Engine& engine) {
  return {.next_id = Engine::next_request_id,
          .submit = [&engine](RequestInput input) { return engine.submit(std::move(input)); },
          .abort = [&engine](RequestId id) { engine.abort(id); }};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  const int log_interval = options.settings.scheduler.decode_log_interval;
  if (log_interval < 1)
    return fail(ErrorCode::bad_value, "--decode-log-interval is {}, must be at least 1",
                log_interval);
  HOCKET_TRY_VOID(check_parallel(options.settings));
  HOCKET_TRY_VOID(check_cache_flags(options.settings));
  if (!options.cluster) HOCKET_TRY_VOID(check_one_process(options.settings.parallel));
  auto engine = std::make_unique<LocalEngine>();
  HOCKET_TRY_VOID(engine->load(options));
  return engine;
}

Result<void> LocalEngine::load(Options& options) {
  places_.emplace(options.settings.memory.max_queued_requests,
                  options.settings.scheduler.enable_priority_scheduling);
  // First, so that the vocabulary is made while the weights are hashed and loaded.
  HOCKET_TRY(grammars_, set_up_grammars(options));
  HOCKET_TRY(hashed_, hash_for_pages(options.settings));
  HOCKET_TRY_VOID(options.cluster                         ? load_one_of_cluster(options)
                  : options.settings.parallel.ep_size > 1 ? load_together(options)
                                                          : load_alone(options));
  HOCKET_TRY_VOID(check_unchanged(options.settings.model, hashed_));
  SessionCalls::Options sessions{.choose = [this](const SessionTokens& saved) {
    return choose_rank(saved.name_space, saved.tokens);
  }};
  if (tier_) sessions.files = tier_->files, sessions.form = tier_->form;
  if (sessions.files)
    sessions.calls =
        FileStore::calls_for(sessions.files->folder(), kSessionFileWait, kMaxSessionCalls);
  sessions_.emplace(std::move(sessions), ranks_);
  info_.grammar_backend = grammars_.compiler ? "llguidance" : "none";
  info_.why_no_grammar = grammars_.why_none;
  return {};
}

Result<void> LocalEngine::load_alone(Options& options) {
  HOCKET_TRY(auto runner, Runner::create({.settings = options.settings,
                                          .progress = std::move(options.progress),
                                          .tokenizer_eos = options.tokenizer_eos}));
  info_ = runner->info();
  return add_rank(std::move(runner), options);
}

Result<void> LocalEngine::load_together(Options& options) {
  const ParallelSettings& parallel = options.settings.parallel;
  HOCKET_TRY(const RoutingPolicy policy, parse_routing_policy(parallel.dp_routing));
  router_.emplace(parallel.ep_size, RequestRouter::Options{.policy = policy});
  HOCKET_TRY(auto runners, load_ranks({.settings = options.settings,
                                       .progress = std::move(options.progress),
                                       .tokenizer_eos = options.tokenizer_eos}));
  info_ = join_infos(runners);
  info_.network = network_name(parallel);
  hub_.emplace(parallel.ep_size, link_model(parallel), LoopbackHub::Time::real);
  std::vector<Transport*> ends;
  for (auto& runner : runners) {
    auto network = std::make_unique<LoopbackNetwork>(hub_->join(static_cast<int>(ends.size())),
                                                     loss_, info_.network);
    ends.push_back(&network->end());
    HOCKET_TRY_VOID(add_rank(std::move(runner), options, std::move(network)));
  }
  loss_.bind(std::move(ends));
  return {};
}

// Joins the other ranks before loading: a rank that does not fit is refused early, and all ranks
// see how far the others have loaded.
Result<void> LocalEngine::load_one_of_cluster(Options& options) {
  const ClusterLaunch& cluster = *options.cluster;
  // Fails before anything is loaded if UCX is missing.
  HOCKET_TRY_VOID(ucx_version());
  HOCKET_TRY(Identity self, make_identity(options.settings, cluster.launch));
  HOCKET_TRY(control_, ControlPlane::join(cluster.control, std::move(self)));
  if (cluster.joined) HOCKET_TRY_VOID(cluster.joined(*control_));
  HOCKET_TRY(const RankConfig seat, join_before_loading(*control_, options.settings));
  const auto tell = [&](const LoadProgress& now) {
    control_->own_heartbeat().progress(static_cast<uint64_t>(now.bytes_done),
                                       static_cast<uint64_t>(now.bytes_total));
    if (options.progress) options.progress(now);
  };
  HOCKET_TRY(auto runner, Runner::create({.settings = options.settings,
                                          .progress = tell,
                                          .tokenizer_eos = options.tokenizer_eos,
                                          .seat = &seat}));
  HOCKET_TRY(auto network,
             ClusterNetwork::create(*control_, {.ucx = ucx_of(options.settings.parallel, *control_),
                                                .terms = runner->terms()}));
  info_ = runner->info();
  info_.network = network->describe();
  return add_rank(std::move(runner), options, std::move(network));
}

Result<void> LocalEngine::add_rank(std::unique_ptr<Runner> runner, const Options& options,
                                   std::unique_ptr<RankNetwork> network) {
  HOCKET_TRY(SchedulerOptions scheduler,
             scheduler_options(options.settings, runner->plan(), runner->info()));
  const ParallelSettings& parallel = options.settings.parallel;
  const int rank = network ? network->rank() : 0;
  const int num_ranks = network ? network->num_ranks() : 1;
  std::unique_ptr<KvEventChannel> events;
  if (options.settings.scheduler.kv_events)
    events = std::make_unique<KvEventChannel>(kv_event_capacity(scheduler.num_pages));
  if (const ModelConfig& model = runner->info().model; !experts_ && model.moe.num_experts > 0) {
    experts_.emplace(model.num_layers, runner->placement(), rank);
    if (const std::string& mode = parallel.expert_distribution_recorder_mode; !mode.empty())
      HOCKET_TRY_VOID(experts_->start(
          {.mode = mode == "stat" ? ExpertRecordMode::stat : ExpertRecordMode::per_pass}));
  }
  ExpertStats* const experts = experts_ ? &*experts_ : nullptr;
  HOCKET_TRY(std::optional<ExpertMover::Options> mover,
             mover_options(options.settings, *runner, rank, experts));
  if (!estimate_) {
    HOCKET_TRY(estimate_, estimate_stages(*runner, parallel));
  }
  if (ranks_.empty()) {
    HOCKET_TRY(tier_, choose_cache_tier(options.settings, *runner, hashed_.name()));
    if (tier_) {
      tier_->record_budget_bytes = options.record_budget_bytes;
      const int place = options.cluster ? options.cluster->launch.local_rank : 0;
      HOCKET_TRY(pages_,
                 offer_pages(options.settings, place, *tier_, *runner, prefill_calls(*this)));
    }
  }
  std::unique_ptr<CacheTier> tier;
  if (tier_) {
    HOCKET_TRY(tier, CacheTier::create(*tier_, runner->pages(), border_states_of(*runner)));
  }
  HOCKET_TRY(SpeculationChoice speculation,
             choose_speculation(options.settings, runner->info().model));
  const LayerCounts layers = estimate_->layers({});
  if (!recorders_)
    recorders_.emplace(
        StepRecorders::Ranks{.first = rank, .num_here = control_ ? 1 : num_ranks, .num = num_ranks},
        *runner);
  ranks_.push_back(std::make_unique<RankLoop>(RankParts{
      .runner = std::move(runner),
      .kv_events = std::move(events),
      .tier = std::move(tier),
      .experts = experts,
      .mover = std::move(mover),
      .rebalance_iterations = parallel.enable_eplb ? parallel.eplb_rebalance_num_iterations : 0,
      .scheduler = std::move(scheduler),
      .log_interval = options.settings.scheduler.decode_log_interval,
      .clock = options.clock,
      .speculation = std::move(speculation),
      .drafter = options.drafter,
      .grammars = grammars_.compiler.get(),
      .network = std::move(network),
      .stall_timeout = options.stall_timeout,
      .max_delayed_passes =
          parallel.enable_prefill_delayer ? parallel.prefill_delayer_max_passes : 0,
      .prior = estimate_,
      .layers = layers,
      .profiler = &recorders_->profiler(),
      .recent = &recorders_->recent(),
      .drain_time = from_seconds(options.settings.http.shutdown_timeout_s),
      .lost_rank_wait = from_seconds(parallel.lost_rank_wait_s),
      .tolerate_ranks = parallel.tolerate_ranks}));
  return {};
}

// Returns the loads that ranks in other processes sent last.
std::vector<RankLoad> LocalEngine::loads() const {
  std::vector<RankLoad> all;
  if (control_) {
    const RankLoop& here = *ranks_.front();
    all = here.agreed_loads();
    all[static_cast<size_t>(here.rank())] = here.load();
    return all;
  }
  for (const auto& rank : ranks_) all.push_back(rank->load());
  return all;
}

std::optional<Error> LocalEngine::lost() const {
  return ranks_.front()->lost().or_else([this] { return stopping(); });
}

std::optional<Error> LocalEngine::stopping() const {
  const int stopping_peer = ranks_.front()->stopping_peer();
  if (stopping_peer < 0 || !control_) return std::nullopt;
  const ClusterView view = control_->view();
  RankSet leaving;
  leaving.add(stopping_peer);
  if (view.may_lose(leaving)) return std::nullopt;
  return error(ErrorCode::lost_rank, "{} is shutting down",
               name_of(view.members[static_cast<size_t>(stopping_peer)].identity));
}

EngineStats LocalEngine::stats() const {
  std::vector<RankStats> ranks;
  for (const auto& rank : ranks_) ranks.push_back(rank->stats());
  EngineStats all = add_up(std::move(ranks));
  if (experts_) all.experts = experts_->balance();
  if (grammars_.compiler) all.grammars = grammars_.compiler->stats();
  all.lost = lost();
  if (control_ && !all.lost) all.missing_ranks = missing_ranks();
  return all;
}

std::string LocalEngine::missing_ranks() const {
  const ClusterView view = control_->view();
  if (!view.serves() || view.whole()) return {};
  return fmt::format("{} of {} ranks serve: {}", view.present().size(), view.members.size(),
                     missing(view));
}

OverlapView LocalEngine::overlap() const {
  OverlapView view{.choice = info().overlap};
  for (const auto& rank : ranks_)
    view.ranks.push_back({rank->rank(), rank->overlap().stats(), rank->stats().moves});
  view.planner = ranks_.front()->overlap().planner_state();
  return view;
}

SpeculationView LocalEngine::speculation() const {
  const SpeculationInfo& settled = info().speculation;
  SpeculationView view;
  if (settled.max_drafts == 0) return view;
  view = {.algorithm = settled.algorithm, .max_drafts = settled.max_drafts, .ranks = {}};
  for (const auto& rank : ranks_)
    if (const Speculation* drafts = rank->speculation(); drafts != nullptr)
      view.ranks.push_back(
          {.rank = rank->rank(), .gate = drafts->state(), .counts = rank->stats().scheduler});
  return view;
}

std::vector<RequestStatus> LocalEngine::request_snapshots() const {
  std::vector<RequestStatus> all;
  for (const auto& rank : ranks_)
    for (const RequestSnapshot& seen : rank->requests())
      all.push_back({.rank = rank->rank(), .seen = seen});
  return all;
}

EngineParts LocalEngine::parts() {
  return {.kv_events = ranks_.front()->kv_events(),
          .expert_stats = experts_ ? &*experts_ : nullptr,
          .profiler = &recorders_->profiler(),
          .recent_steps = &recorders_->recent(),
          .cluster = control_.get(),
          .role = tier_ ? tier_->role.get() : nullptr};
}

RequestId Engine::next_request_id() {
  static std::atomic<uint64_t> next{1};
  return RequestId{next++};
}

void LocalEngine::start(Outbox& outbox) {
  HOCKET_CHECK(!threaded_.load());
  threaded_ = true;
  for (const auto& rank : ranks_) rank->start(outbox);
  if (pages_) pages_->start();
}

void LocalEngine::stop() {
  if (!threaded_) return;
  accepting_ = false;
  if (pages_) pages_->stop();
  for (const auto& rank : ranks_) rank->ask_to_stop();
  for (const auto& rank : ranks_) rank->join();
}

Result<int> LocalEngine::choose_rank(const CacheNamespace& name_space,
                                     std::span<const TokenId> prompt) {
  if (!router_) return 0;
  MutexLock lock(router_mutex_);
  return router_->choose(name_space, prompt, loads());
}

Result<void> LocalEngine::submit(RequestInput input) {
  const auto shutting_down = [] {
    return fail(error(ErrorCode::shutting_down, "the server is shutting down")
                    .with_fix("ask another server, or again when this one is back"));
  };
  if (!accepting_ && !input.taken_over) return shutting_down();
  if (auto why = ranks_.front()->serves_soon() ? stopping() : lost(); why && !input.taken_over)
    return fail(*std::move(why));
  HOCKET_TRY_VOID(check_input(input, info()));
  int queued = 0;
  for (const auto& rank : ranks_) queued += rank->num_queued();
  if (!input.taken_over) HOCKET_TRY_VOID(places_->enter(input, queued));
  HOCKET_TRY(const int chosen, choose_rank(input.cache_namespace, input.prompt));
  if (ranks_[static_cast<size_t>(chosen)]->submit(input)) return {};
  // The mailbox has room for all that is taken over, until the engine has stopped and closed it.
  const QueueLimit<> mailbox{"the engine's mailbox is full", "try again later"};
  return input.taken_over ? shutting_down() : fail(queue_full(mailbox));
}

void LocalEngine::abort(RequestId id) {
  send_to_all([&] {
    return AbortRequest{.id = id,
                        .reason = FinishReason::abort,
                        .why = error(ErrorCode::invalid_request, "the request was aborted")};
  });
}

void LocalEngine::finish_whole(RequestId id) {
  send_to_all([&] { return AbortRequest{.id = id, .reason = FinishReason::stop, .why = {}}; });
}

void LocalEngine::abort_all() {
  send_to_all(
      [] { return AbortAll{error(ErrorCode::invalid_request, "all requests were aborted")}; });
}

bool LocalEngine::flush_cache() {
  // Checks first, so that no rank flushes while another runs (unless a request arrives just here).
  const auto has_requests = [](const RankLoad& load) { return load.num_requests > 0; };
  if (ranks_.size() > 1 && std::ranges::any_of(loads(), has_requests)) return false;
  std::vector<std::future<bool>> answers;
  send_to_all([&] {
    FlushCache flush;
    answers.push_back(flush.answer.get_future());
    return flush;
  });
  if (!threaded_)
    for (const auto& rank : ranks_) rank->intake();
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
      if (!here || !router_) continue;
      MutexLock lock(router_mutex_);
      router_->forget(static_cast<int>(i));
    } catch (const std::future_error&) {
      flushed = false;  // the engine stopped before it answered
    }
  }
  return flushed;
}

bool LocalEngine::step(Outbox& outbox) {
  HOCKET_CHECK(!threaded_.load());
  HOCKET_CHECK(ranks_.size() == 1u);
  return ranks_.front()->step(outbox);
}

}  // namespace hocket
