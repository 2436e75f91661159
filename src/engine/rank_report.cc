#include "engine/rank_report.h"

#include <algorithm>

#include "base/black_box.h"

namespace hocket {

RankReport::RankReport(const Options& options)
    : rank_(options.rank),
      clock_(*options.clock),
      own_heartbeat_(options.own_heartbeat),
      step_log_(options.log_interval, options.log_prefix),
      last_alive_ns_(clock_.now().time_since_epoch().count()) {}

void RankReport::count_submitted(int64_t num_tokens) {
  ++num_in_mailbox_;
  ++load_requests_;
  load_tokens_ += num_tokens;
}

void RankReport::forget_submitted(int64_t num_tokens) {
  --num_in_mailbox_;
  --load_requests_;
  load_tokens_ -= num_tokens;
}

void RankReport::count_intake(int64_t num_tokens) {
  --num_in_mailbox_;
  ++new_requests_;
  new_tokens_ += num_tokens;
}

// Where steps overlap, the engine's thread waits for a step or an agreement most of the time; then
// the thread that computes is where the rank is.
StepPosition RankReport::position() const {
  StepPosition position{.action = action_.load(std::memory_order_relaxed)};
  const StepAction forward_action = forward_action_.load(std::memory_order_relaxed);
  const bool is_waiting =
      position.action == StepAction::forward || position.action == StepAction::agree;
  if (is_waiting && forward_action != StepAction::idle) position.action = forward_action;
  if (own_heartbeat_ == nullptr) return position;
  const Heartbeat heartbeat = own_heartbeat_->heartbeat();
  const bool open = heartbeat.state != EngineState::closed;
  if (open && heartbeat.stage > 0)
    position.layer = static_cast<int>(heartbeat.stage) / kNumMessageKinds;
  position.waits = position.action == StepAction::agree || heartbeat.state == EngineState::waiting;
  return position;
}

RankStats RankReport::stats() const {
  RankStats copy;
  {
    MutexLock lock(mutex_);
    copy = stats_;
  }
  const int in_mailbox = num_in_mailbox_;  // they wait already, though no step has seen them
  copy.scheduler.num_waiting += in_mailbox;
  copy.busy = busy_ || in_mailbox > 0;
  copy.position = position();
  if (copy.busy) {
    const Duration since = clock_.now().time_since_epoch() - Duration(last_alive_ns_.load());
    copy.seconds_since_last_step = std::max(0.0, to_seconds(since));
  }
  return copy;
}

void RankReport::count_end(FinishReason finish) {
  MutexLock lock(mutex_);
  ++(finish == FinishReason::abort   ? stats_.num_requests_aborted
     : finish == FinishReason::error ? stats_.num_requests_failed
                                     : stats_.num_requests_finished);
}

// Requests in the mailbox stay counted until a step has counted them.
void RankReport::publish_load(const SchedulerStats& now) {
  num_waiting_ = now.num_waiting;
  const int requests = now.num_running + now.num_waiting + now.num_held;
  const int64_t tokens = now.num_waiting_tokens + now.num_running;
  load_requests_ += requests - published_requests_ - new_requests_;
  load_tokens_ += tokens - published_tokens_ - new_tokens_;
  published_requests_ = requests;
  published_tokens_ = tokens;
  new_requests_ = 0;
  new_tokens_ = 0;
}

// Writes the step into the black box, to be read after a crash.
void RankReport::note_step(const Flight& flight, const SchedulerStats& now) const {
  const Batch& batch = *flight.batch;
  black_box::note(black_box::Ring::steps,
                  R"("step":{},"rank":{},"rows":{},"decode_rows":{},"seqs":{},"running":{},)"
                  R"("waiting":{},"used_tokens":{},"took_us":{:.0f})",
                  step_log_.num_steps(), rank_, batch.num_rows, batch.num_decode_rows_total(),
                  batch.slices.size(), now.num_running, now.num_waiting, now.num_used_tokens,
                  to_us(flight.took()));
}

void RankReport::publish(const Flight& flight, const Scheduler& scheduler, TimePoint now,
                         const std::optional<StepTransfers>& transfers) {
  const SchedulerStats counts = scheduler.stats();
  step_log_.note(*flight.batch, counts, flight.end, flight.took(), transfers);
  publish_load(counts);
  board_.note(scheduler, now);
  note_step(flight, counts);
  last_alive_ns_ = now.time_since_epoch().count();
  MutexLock lock(mutex_);
  stats_.scheduler = counts;
  stats_.fetched_tokens_total = fetched_tokens_;
  stats_.steps = step_log_.counts();
  const bool idle = flight.batch->slices.empty();
  stats_.gen_throughput = idle ? 0 : step_log_.gen_throughput();
  stats_.input_throughput = idle ? 0 : step_log_.input_throughput();
  stats_.last_step_seconds = to_seconds(flight.took());
  stats_.step_seconds_total += to_seconds(flight.took());
  stats_.exchange_wait_seconds_total = to_seconds(exchange_waited_);
  stats_.agreement_wait_seconds_total = to_seconds(agreement_waited_);
}

void RankReport::publish_idle(const Scheduler& scheduler) {
  const SchedulerStats now = scheduler.stats();
  publish_load(now);
  board_.note_idle(scheduler, clock_.now());
  note_alive();
  MutexLock lock(mutex_);
  stats_.scheduler = now;
  stats_.fetched_tokens_total = fetched_tokens_;
  stats_.gen_throughput = stats_.input_throughput = 0;
}

}  // namespace hocket
