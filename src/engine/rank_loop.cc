#include "engine/rank_loop.h"

#include <thread>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

constexpr int kControlCommands = 4096;  // room for aborts and flushes beside queued requests
constexpr Duration kControlWait = std::chrono::seconds(2);
constexpr auto kIdleWait = std::chrono::milliseconds(100);
constexpr auto kJoinWait = std::chrono::milliseconds(200);

// Returns the prefix of the log lines if there are several ranks, in SGLang's form.
std::string log_prefix(const RankNetwork* network) {
  if (network == nullptr) return "";
  return fmt::format("DP{0} EP{0} ", network->rank());
}

// Leaves room for the aborts of other ranks' requests too, because each abort is sent to all ranks.
// Ranks that may be lost alone also leave all their requests to this one
// (RequestInput::taken_over): as many as may wait and run there, and those that the server there
// has not passed on yet.
size_t command_room(const SchedulerOptions& scheduler, const RankNetwork* network) {
  const auto queued = static_cast<size_t>(scheduler.max_queued_requests);
  const auto running = static_cast<size_t>(scheduler.max_running_requests);
  const auto others = static_cast<size_t>(network == nullptr ? 0 : network->num_ranks() - 1);
  const size_t taken_over_room =
      network != nullptr && network->can_rejoin() ? queued + 2 * running : 0;
  return queued + kControlCommands + others * (2 * running + taken_over_room);
}

}  // namespace

RankLoop::RankLoop(RankParts parts)
    : clock_(parts.clock != nullptr ? *parts.clock : real_clock_),
      network_(std::move(parts.network)),
      drain_time_(parts.drain_time),
      commands_(command_room(parts.scheduler, network_.get())),
      report_({.rank = rank(),
               .log_interval = parts.log_interval,
               .log_prefix = log_prefix(network_.get()),
               .clock = &clock_,
               .own_heartbeat = network_ ? &network_->own_heartbeat() : nullptr}),
      step_(std::move(parts), {.clock = clock_,
                               .network = network_.get(),
                               .commands = commands_,
                               .report = report_,
                               .wake = [this] { wake(); }}) {}

void RankLoop::start(Outbox& outbox) {
  HOCKET_CHECK(!threaded_.load());
  threaded_ = true;
  thread_ = Thread({.name = network_ ? fmt::format("engine{}", rank()) : "engine"},
                   [this, &outbox] { run(outbox); });
}

void RankLoop::run(Outbox& outbox) {
  step_.adopt_thread();
  step_.requests().answers().send_to(outbox);
  if (network_) join_epoch();  // returns at once if all ranks are in this process
  while (!should_exit()) {
    if (network_ && !step_.epochs().joined()) {
      join_epoch();
      continue;
    }
    const bool turns = has_work();
    if (turns && step_.run()) continue;
    if (!turns && report_.set_busy(false)) step_.publish_idle();
    if (!should_exit()) wait_for_work();
  }
  step_.end_all(error(ErrorCode::shutting_down, "the server is shutting down"));
  if (!network_) return;
  if (step_.epochs().connected() && !step_.epochs().lockstep()->agreed().all_end)
    network_->announce_end();
  step_.epochs().leave();
}

bool RankLoop::step(Outbox& outbox) {
  step_.requests().answers().send_to(outbox);
  return step_.run();
}

// Several ranks stop together, after the step that they agreed to be the last. Exceptions: they
// cannot agree any more, or this rank may leave the others and `drain_time` is over.
bool RankLoop::should_exit() const {
  if (!step_.epochs().connected()) return stopping_;
  return step_.epochs().lockstep()->agreed().ends ||
         (stopping_ && network_->others_can_serve() &&
          clock_.now().time_since_epoch().count() > stop_by_ns_.load());
}

// Looks for the other ranks. Requests that were running wait meanwhile.
void RankLoop::join_epoch() {
  const auto ranks = network_->members(kJoinWait);
  if (ranks && *ranks && !step_.load_experts(**ranks)) {
    wait_for_work();  // its experts are being loaded
    return step_.wait_for_ranks();
  }
  auto link = Result<std::optional<RankNetwork::Link>>(std::nullopt);
  if (ranks && *ranks) link = network_->join(**ranks, kJoinWait);
  if (!ranks || !link) wait_for_work();  // it failed for good
  if (!ranks || !link || !*link) return step_.wait_for_ranks();
  if (const auto joined = step_.join_epoch(**link); !joined) {
    network_->report_lost(-1, joined.error());
    return network_->leave();
  }
  const int num_there = (*link)->ranks.size();
  if (step_.epochs().connected())
    log::info("rank {}: {} ranks in epoch {} over {}", rank(),
              num_there == network_->num_ranks()
                  ? std::to_string(num_there)
                  : fmt::format("{} of {}", num_there, network_->num_ranks()),
              (*link)->epoch, network_->describe());
}

// A single rank may always try a step. With several ranks a step costs an agreement, so there must
// be a reason: work here, or work on another rank.
bool RankLoop::has_work() {
  if (!step_.epochs().connected()) return true;
  const Ledger::OtherWork other(step_.ledger(), "look for work");
  if (stopping_) step_.epochs().lockstep()->ask_to_end();
  return stopping_ || step_.has_work();
}

// While pages are left to copy, this rank does not wait, since each turn copies some. The thread
// that read them has woken this rank already and does not wake it again.
void RankLoop::wait_for_work() {
  if (step_.requests().has_pages_to_copy()) return report_.note_alive();
  if (step_.epochs().connected()) {
    // A request that arrived while this rank waited for an agreement has used up its wake-up
    // already.
    if (commands_.size() == 0) step_.epochs().lockstep()->wait(kIdleWait);
    report_.note_alive();
    return;
  }
  if (auto command = commands_.wait_pop(kIdleWait)) step_.handle(*command);
}

void RankLoop::ask_to_stop() {
  stop_by_ns_ = (clock_.now() + drain_time_).time_since_epoch().count();
  stopping_ = true;
  wake();
}

void RankLoop::wake() {
  commands_.wake();
  if (network_) network_->wake();
}

void RankLoop::join() {
  if (!thread_.joinable()) return;
  thread_.join();
  commands_.close();
}

bool RankLoop::submit(RequestInput& input) {
  const int64_t num_tokens = std::ssize(input.prompt);
  report_.count_submitted(num_tokens);
  Command command = std::move(input);
  if (commands_.push(command)) {
    if (network_) network_->wake();
    return true;
  }
  input = std::get<RequestInput>(std::move(command));
  report_.forget_submitted(num_tokens);
  return false;
}

// The caller may be the very thread that the rank waits for, as the reader of a full outbox. So the
// wait has a limit, which all callers that find the mailbox full share.
void RankLoop::push_control(Command command) {
  while (!commands_.push(command)) {
    if (commands_.closed()) return;
    if (!waits_for_room()) {
      if (!drops_.exchange(true))
        log::warning(
            "rank {}: its mailbox has been full for {:.0f} s, so aborts and flushes are dropped "
            "until it has room, and requests that were to be aborted run to their ends. If it "
            "does not continue, restart the server",
            rank(), to_seconds(kControlWait));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  full_since_ns_ = 0;
  drops_ = false;
  if (network_) network_->wake();
}

// A rank without a thread is stepped by its caller, so waiting would never end.
bool RankLoop::waits_for_room() {
  const int64_t now = real_clock_.now().time_since_epoch().count();
  int64_t since = 0;
  if (full_since_ns_.compare_exchange_strong(since, now)) since = now;
  return threaded_ && Duration(now - since) < kControlWait;
}

std::optional<Error> RankLoop::lost() const {
  if (!network_) return std::nullopt;
  auto lost = network_->lost();
  if (!lost || step_.mover() == nullptr) return lost;
  auto not_loaded = step_.mover()->last_load_error();
  return not_loaded ? not_loaded : lost;
}

bool RankLoop::serves_soon() const {
  if (!network_ || !network_->serves_soon()) return false;
  return step_.mover() == nullptr || !step_.mover()->last_load_error();
}

// The loss of a rank of this process is final anyway, and ends the requests alone.
std::optional<Error> RankLoop::failure() const {
  if (!network_) return std::nullopt;
  if (auto failure = network_->failure()) return failure;
  if (!network_->can_rejoin() || step_.mover() == nullptr) return std::nullopt;
  return step_.mover()->final_load_error();
}

RankStats RankLoop::stats() const {
  RankStats stats = report_.stats();
  stats.overlap = step_.overlap().stats();
  if (step_.requests().tier() != nullptr) stats.tier = step_.requests().tier()->stats();
  if (step_.mover() != nullptr) stats.moves = step_.mover()->stats();
  return stats;
}

std::vector<RankLoad> RankLoop::agreed_loads() const {
  std::vector<RankLoad> all;
  for (int rank = 0; network_ && rank < network_->num_ranks(); ++rank)
    all.push_back(step_.epochs().lockstep()->loads().of(rank));
  return all;
}

}  // namespace hocket
