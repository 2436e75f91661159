#include "engine/rank.h"

#include <algorithm>
#include <thread>

#include "base/log.h"

namespace hocket {
namespace {

constexpr int kControlCommands = 4096;  // room for aborts and flushes beside queued requests
constexpr Duration kControlWait = std::chrono::seconds(2);
constexpr auto kIdleWait = std::chrono::milliseconds(100);
constexpr auto kMeetWait = std::chrono::milliseconds(200);

// Returns the prefix of the log lines if there are several ranks, in SGLang's form.
std::string log_prefix(const RankNetwork* network) {
  if (network == nullptr) return "";
  return fmt::format("DP{0} EP{0} ", network->rank());
}

// Leaves room for the aborts of other ranks' requests too, because each abort goes to all ranks.
size_t command_room(const SchedulerOptions& scheduler, const RankNetwork* network) {
  const int others = network == nullptr ? 0 : network->num_ranks() - 1;
  return static_cast<size_t>(scheduler.max_queued_requests) + kControlCommands +
         2 * static_cast<size_t>(others) * static_cast<size_t>(scheduler.max_running_requests);
}

SchedulerOptions with(SchedulerOptions options, KvEventChannel* events, SchedulerHooks* hooks) {
  options.kv_events = events;
  options.hooks = hooks;
  return options;
}

}  // namespace

Rank::Rank(Parts parts)
    : clock(parts.clock != nullptr ? *parts.clock : real_clock),
      network(std::move(parts.network)),
      watch(network ? &network->pulse() : nullptr),
      stall_timeout(parts.stall_timeout),
      farewell(parts.farewell),
      runner(std::move(parts.runner)),
      kv_events(std::move(parts.kv_events)),
      experts(parts.experts),
      lockstep(network ? std::make_optional<Lockstep>(
                             network->num_ranks(),
                             Lockstep::Options{.pulse = &network->pulse(),
                                               .max_delayed_passes = parts.max_delayed_passes,
                                               .orders = runner->overlap().orders.get(),
                                               .may_leave_others = network->may_leave_others()})
                       : std::nullopt),
      overlap({.rank = rank_index(),
               .num_ranks = network ? network->num_ranks() : 1,
               .layers = parts.layers,
               .settings = &runner->overlap(),
               .prior = std::move(parts.prior),
               .row_tile = runner->row_tile(),
               .clock = network ? &real_clock : &clock,
               .profiler = parts.profiler,
               .recent = parts.recent}),
      grammars(
          parts.grammars, [this] { wake(); },
          static_cast<size_t>(parts.scheduler.max_running_requests)),
      hooks(grammars, lockstep ? &*lockstep : nullptr),
      mixes(parts.scheduler.prefill_policy != PrefillPolicy::prefill_first),
      scheduler(with(parts.scheduler, kv_events.get(), &hooks)),
      sampler(runner->info().model.vocab_size, runner->plan().work.max_logits_rows),
      step_log(parts.log_interval, log_prefix(network.get())),
      commands(command_room(parts.scheduler, network.get())) {
  const int max_requests = parts.scheduler.max_running_requests + 1;
  for (Flight& flight : flights) {
    flight.reserve(runner->plan().work, max_requests,
                   parts.scheduler.num_pages * (parts.scheduler.window_tokens > 0 ? 2 : 1));
    flight.experts.rank = rank_index();
    flight.experts.counts.resize(experts != nullptr ? experts->num_counts() : 0);
  }
  last_turn_ns = clock.now().time_since_epoch().count();
  if (runner->info().overlap_schedule) forward_thread.emplace(tools());
}

void Rank::start(Outbox& box) {
  HOCKET_CHECK(!threaded.load());
  threaded = true;
  thread = Thread({.name = lockstep ? fmt::format("engine{}", rank_index()) : "engine"},
                  [this, &box] { run(box); });
}

void Rank::run(Outbox& box) {
  if (!forward_thread) runner->workers().adopt_caller();
  outbox = &box;
  if (network) meet();  // returns at once if all ranks are in this process
  while (!over()) {
    if (network && !met) {
      meet();
      continue;
    }
    const bool turns = has_cause();
    if (turns && step(box)) continue;
    if (!turns && busy.exchange(false)) rest();
    if (!over()) nap();
  }
  land_all();
  const Error why = error(ErrorCode::shutting_down, "the server is shutting down");
  intake();
  for (const RequestId id : live) scheduler.abort(id, FinishReason::abort, why);
  send_finished();
  if (network) leave();
}

// Several ranks stop together, after the step that they agreed to be the last. Exceptions: they
// cannot agree any more, or this rank may leave the others and `farewell` is over.
bool Rank::over() const {
  if (!together()) return stopping;
  return lockstep->ends() || (stopping && network->may_leave_others() &&
                              clock.now().time_since_epoch().count() > stop_by_ns.load());
}

bool Rank::together() const {
  return met && !lockstep->lost();
}

// Looks for the other ranks; requests that arrive meanwhile are refused, naming the missing ranks.
void Rank::meet() {
  auto link = network->join(kMeetWait);
  if (!link) return nap();  // it failed for good
  if (!*link) return intake();
  auto exchange = runner->attach({.transport = *(*link)->transport,
                                  .epoch = (*link)->epoch,
                                  .abort = &network->abort(),
                                  .watch = &watch,
                                  .stall_timeout = stall_timeout});
  if (!exchange) {
    network->lose(-1, exchange.error());
    return network->part();
  }
  lockstep->rebind(*(*link)->transport, **exchange);
  overlap.rebind((*link)->transport->caps().exact_arrival);
  watch.book_in(&overlap.ledger());
  met = true;
  // The first messages between two ranks open their connection: better here than in the first
  // request.
  if (!lockstep->settle({})) return give_up({});
  log::info("rank {}: {} ranks in epoch {} over {}", network->rank(), network->num_ranks(),
            (*link)->epoch, network->describe());
}

Error Rank::why_not_met() const {
  return network->lost().value_or(
      error(ErrorCode::lost_rank, "the ranks are being joined").with_fix("ask again"));
}

void Rank::leave() {
  met = false;
  runner->detach();
  network->part();
}

// A single rank may always try a step. With several ranks a step costs an agreement, so there must
// be a reason: work here, or work on another rank.
bool Rank::has_cause() {
  if (!together()) return true;
  const Ledger::Beside beside(ledger(), "look for work");
  if (stopping) lockstep->ask_to_end();
  return stopping || !scheduler.idle() || commands.size() > 0 || lockstep->called();
}

void Rank::nap() {
  if (together()) {
    // A request that came while this rank waited for an agreement has used up its wake-up already.
    if (commands.size() == 0) lockstep->wait(kIdleWait);
    last_turn_ns = clock.now().time_since_epoch().count();  // an idle rank is not stuck
    return;
  }
  if (auto command = commands.wait_pop(kIdleWait))
    std::visit([this](auto& c) { handle(c); }, *command);
}

void Rank::ask_to_stop() {
  stop_by_ns = (clock.now() + farewell).time_since_epoch().count();
  stopping = true;
  wake();
}

void Rank::wake() {
  commands.wake();
  if (network) network->wake();
}

void Rank::join() {
  if (!thread.joinable()) return;
  thread.join();
  commands.close();
}

bool Rank::submit(RequestInput& input) {
  const int64_t num_tokens = std::ssize(input.prompt);
  ++num_handed_over;
  ++load_requests;
  load_tokens += num_tokens;
  Command command = std::move(input);
  if (commands.push(command)) {
    if (network) network->wake();
    return true;
  }
  input = std::get<RequestInput>(std::move(command));
  --num_handed_over;
  --load_requests;
  load_tokens -= num_tokens;
  return false;
}

// The caller may be the very thread that the rank waits for, as the reader of a full outbox. So the
// wait has a limit, which all callers that find the mailbox full share.
void Rank::push_control(Command command) {
  while (!commands.push(command)) {
    if (commands.closed()) return;
    if (!waits_for_room()) {
      if (!drops.exchange(true))
        log::warning(
            "rank {}: its mailbox has been full for {:.0f} s, so aborts and flushes are dropped "
            "until it has room, and requests that were to be aborted run to their ends. If it "
            "does not go on, restart the server",
            rank_index(), to_seconds(kControlWait));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  full_since_ns = 0;
  drops = false;
  if (network) network->wake();
}

// A rank without a thread is stepped by its caller, so waiting would be in vain.
bool Rank::waits_for_room() {
  const int64_t now = real_clock.now().time_since_epoch().count();
  int64_t since = 0;
  if (full_since_ns.compare_exchange_strong(since, now)) since = now;
  return threaded && Duration(now - since) < kControlWait;
}

RankLoad Rank::load() const {
  return {.num_requests = load_requests, .num_tokens = load_tokens};
}

std::vector<RankLoad> Rank::heard_loads() const {
  std::vector<RankLoad> all;
  for (int rank = 0; lockstep && rank < network->num_ranks(); ++rank)
    all.push_back(lockstep->heard(rank));
  return all;
}

StepPlace Rank::place() const {
  StepPlace place{.verb = verb.load(std::memory_order_relaxed)};
  if (!network) return place;
  const Beat beat = network->pulse().beat();
  const bool open = beat.state != EngineState::closed;
  if (open && beat.stage > 0) place.layer = static_cast<int>(beat.stage) / kNumMessageKinds;
  place.waits = place.verb == Verb::agree || beat.state == EngineState::waiting;
  return place;
}

RankStats Rank::read_stats() const {
  RankStats copy;
  {
    std::lock_guard lock(stats_mutex);
    copy = stats;
  }
  const int handed_over = num_handed_over;  // they wait already, though no step has seen them
  copy.overlap = overlap.stats();
  copy.scheduler.num_waiting += handed_over;
  copy.busy = busy || handed_over > 0;
  copy.place = place();
  if (copy.busy) {
    const Duration since = clock.now().time_since_epoch() - Duration(last_turn_ns.load());
    copy.seconds_since_last_step = std::max(0.0, to_seconds(since));
  }
  return copy;
}

}  // namespace hocket
