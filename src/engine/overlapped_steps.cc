#include "engine/overlapped_steps.h"

#include <pthread.h>

#include <thread>
#include <utility>

namespace hocket {

OverlappedSteps::OverlappedSteps(const Context& around)
    : tools_(around.tools),
      overlap_(around.overlap),
      epochs_(around.epochs),
      report_(around.report) {
  const OverlapSchedule schedule = tools_.runner.info().overlap_schedule;
  if (schedule == OverlapSchedule::off) return;
  thread_.emplace(
      [this] { tools_.runner.workers().adopt_caller(); },
      [this](Flight& flight, std::span<const SampledToken> before) { compute(flight, before); });
  active_ = schedule == OverlapSchedule::on;
  if (Lockstep* const lockstep = epochs_.lockstep()) {
    epochs_.watch().carry(lockstep->carrier());
    lockstep->set_overlapped(active_);
  }
  // One of several ranks learns from each epoch whether it decides.
  timing_.decide(schedule == OverlapSchedule::measured && epochs_.alone());
}

void OverlappedSteps::adopt_thread() {
  if (cpu_set_t cpus; pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus) == 0)
    own_cpus_ = cpus;
  if (!active_) tools_.runner.workers().adopt_caller();
}

void OverlappedSteps::rebind() {
  between_.reset();
  const OverlapSchedule schedule = tools_.runner.info().overlap_schedule;
  timing_.decide(epochs_.leads() && schedule == OverlapSchedule::measured);
}

void OverlappedSteps::set_active(bool active) {
  between_.reset();
  active_ = active;
  after_idle_ = true;
  if (Lockstep* const lockstep = epochs_.lockstep()) lockstep->set_overlapped(active);
  epochs_.watch().book_in(ledger());
  // Without adopt_thread() the thread is not ours to pin.
  if (!own_cpus_) return;
  if (active)
    pthread_setaffinity_np(pthread_self(), sizeof *own_cpus_, &*own_cpus_);
  else
    tools_.runner.workers().adopt_caller();
}

void OverlappedSteps::launch(Flight& flight) {
  flight.after_idle = std::exchange(after_idle_, false);
  if (Lockstep* const lockstep = epochs_.lockstep()) lockstep->carrier().lend();
  thread_->launch(flight);
  timing_.note_launch(tools_.clock.now());
}

std::optional<double> OverlappedSteps::share_at(const Flight& flight) const {
  if (tools_.runner.info().overlap_schedule == OverlapSchedule::on) return {};
  return epochs_.alone() ? timing_.overlapped_share() : flight.agreed.overlapped_share;
}

// The step that was agreed on is begun by what is done before it.
void OverlappedSteps::run_on_forward_thread(const std::function<void()>& job) {
  if (Lockstep* const lockstep = epochs_.lockstep()) lockstep->carrier().lend();
  const AgreedStep agreed = epochs_.agreed();
  const auto run = [&] {
    report_.begin_forward_action(StepAction::forward);
    epochs_.begin_pass(agreed, overlap_.ledger());
    job();
    epochs_.end_pass();
    report_.begin_forward_action(StepAction::idle);
  };
  thread_->run(std::cref(run));
}

// Computes a step on the forward thread. The exchange with other ranks, its watch and the ledger
// are this thread's during the pass, and so is the ledger at all times.
void OverlappedSteps::compute(Flight& flight, std::span<const SampledToken> before) {
  Ledger& ledger = overlap_.ledger();
  between_.reset();
  if (flight.after_idle) overlap_.drop();
  overlap_.begin();
  report_.begin_forward_action(StepAction::forward);
  epochs_.begin_pass(flight.agreed, ledger);
  forward(flight, before, tools_);
  flight.exchange_wait = epochs_.watch().take_waited();
  flight.account = overlap_.end();
  epochs_.end_pass();
  report_.begin_forward_action(StepAction::sample);
  if (flight.lost) {
    flight.sampled.assign(flight.samples.size(), {.failed = true});
  } else {
    const Ledger::OtherWork other(&ledger, "sample");
    sample(flight, tools_);
  }
  report_.begin_forward_action(StepAction::idle);
  between_.emplace(&ledger, "wait for a step");
}

// True if no rank computes prompts in the step.
bool OverlappedSteps::is_of_answers(const Flight& flight) const {
  return epochs_.alone() ? flight.batch->mode == ForwardMode::decode
                         : flight.agreed.pass.phase == Phase::decode;
}

// Steps of answers alone last about as long as each other; beside others it does not sleep.
void OverlappedSteps::await_more_requests(const Flight& finished, const Flight& under_way) {
  if (!is_of_answers(under_way) || !is_of_answers(finished)) return;
  const Duration remaining =
      timing_.time_to_sleep(finished, under_way.batch->num_rows, tools_.clock.now());
  if (remaining > Duration{}) std::this_thread::sleep_for(remaining);
}

void OverlappedSteps::note_commit(const Flight& flight, TimePoint now) {
  timing_.note_commit(flight, is_of_answers(flight), active_, now);
}

void OverlappedSteps::note_idle() {
  if (!active_) overlap_.drop();
  after_idle_ = true;
  timing_.note_idle();
}

}  // namespace hocket
