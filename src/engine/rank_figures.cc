// The numbers that a rank publishes after each step.
#include "base/black_box.h"
#include "engine/rank.h"

namespace hocket {

// Requests that were handed over stay counted until a step has counted them.
void Rank::publish_load(const SchedulerStats& now) {
  num_waiting = now.num_waiting;
  const int requests = now.num_running + now.num_waiting + now.num_held;
  const int64_t tokens = now.num_waiting_tokens + now.num_running;
  load_requests += requests - published_requests - new_requests;
  load_tokens += tokens - published_tokens - new_tokens;
  published_requests = requests;
  published_tokens = tokens;
  new_requests = 0;
  new_tokens = 0;
}

// Writes the step into the black box, to be read after a crash.
void Rank::note_step(const Flight& flight, const SchedulerStats& now) const {
  const Batch& batch = *flight.batch;
  black_box::note(black_box::Ring::steps,
                  R"("step":{},"rank":{},"rows":{},"decode_rows":{},"seqs":{},"running":{},)"
                  R"("waiting":{},"used_tokens":{},"took_us":{:.0f})",
                  step_log.num_steps(), rank_index(), batch.num_rows, batch.num_answer_rows(),
                  batch.slices.size(), now.num_running, now.num_waiting, now.num_used_tokens,
                  to_us(flight.took()));
}

void Rank::publish(const Flight& flight, TimePoint now) {
  const SchedulerStats counts = scheduler.stats();
  std::optional<StepTransfers> transfers;
  if (lockstep) {
    const StepAccount& a = overlap.account();
    transfers = {a.hidden, a.exposed, a.hidden_is_bound};
  }
  step_log.note(*flight.batch, counts, flight.end, flight.took(), transfers);
  publish_load(counts);
  board.note(scheduler, now);
  note_step(flight, counts);
  last_turn_ns = now.time_since_epoch().count();
  std::lock_guard lock(stats_mutex);
  stats.scheduler = counts;
  stats.steps = step_log.counts();
  stats.gen_throughput = flight.batch->slices.empty() ? 0 : step_log.gen_throughput();
  stats.last_step_seconds = to_seconds(flight.took());
  stats.step_seconds_total += to_seconds(flight.took());
  stats.exchange_wait_seconds_total = to_seconds(exchange_waited);
  stats.agreement_wait_seconds_total = to_seconds(agreement_waited);
}

}  // namespace hocket
