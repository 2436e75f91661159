// Overlapped steps: the verbs of a step run one step apart, on two threads.
//
//   engine thread    agree(n + 1) prepare launch | wait(n) commit(n) reply(n) vote(n + 2) | ..
//   forward thread   .... forward, sample(n) ....| .... forward, sample(n + 1) ....
//
// The vote for step n + 2 is made when step n is committed, as without overlap: one step is under
// way then. It travels beside the forward pass of step n + 1 (vote_carrier.h), so that the engine's
// thread can agree, schedule and prepare before that pass is over. While a step is under way, so is
// an agreement.
#include <pthread.h>

#include <array>
#include <thread>

#include "engine/step.h"

namespace hocket {

void RankStep::begin_overlapping(OverlapSchedule schedule) {
  forward_thread_.emplace([this] { runner_->workers().adopt_caller(); },
                          [this](Flight& flight, std::span<const SampledToken> before) {
                            compute_ahead(flight, before);
                          });
  if (lockstep_) watch_.carry(lockstep_->carrier());
  overlapped_.active = schedule == OverlapSchedule::on;
  if (lockstep_) lockstep_->set_overlapped(overlapped_.active);
  // One of several ranks learns from each epoch whether it decides.
  overlapped_.timing.decide(schedule == OverlapSchedule::measured && !lockstep_);
}

// Answers with grammars take forced tokens in steps that do not overlap, which saves them whole
// steps: more than overlap could. Steps with drafts cannot overlap.
bool RankStep::wants_overlap() const {
  const Speculation* const drafts = drafts_.speculation();
  return overlapped_.timing.wants_overlap() && !grammars_.any_live() &&
         (drafts == nullptr || !drafts->plays_drafts());
}

// Lets steps overlap, or not, as the trials say; with several ranks as the lead says. Which thread
// computes changes between two steps, with nothing under way. Returns false if ranks were lost.
bool RankStep::follow_choice() {
  if (runner_->info().overlap_schedule != OverlapSchedule::measured) return true;
  const bool overlap = lockstep_ ? lockstep_->steps_overlap() : wants_overlap();
  if (overlap == overlapped_.active) return true;
  if (!finish_all()) return false;
  overlapped_.between.reset();
  overlapped_.active = overlap;
  overlapped_.after_rest = true;
  if (lockstep_) lockstep_->set_overlapped(overlap);
  watch_.book_in(ledger());
  if (!overlapped_.own_cpus) return true;  // its caller made no promise about its thread
  if (overlap)
    pthread_setaffinity_np(pthread_self(), sizeof *overlapped_.own_cpus, &*overlapped_.own_cpus);
  else
    runner_->workers().adopt_caller();
  return true;
}

// True if no rank computes prompts in the step.
bool RankStep::is_of_answers(const Flight& flight) const {
  return lockstep_ ? flight.agreed.pass.phase == Phase::decode
                   : flight.batch->mode == ForwardMode::decode;
}

// A step with drafts is made behind the commit of the one before, and committed before the next.
bool RankStep::run_overlapped() {
  intake();
  if (lockstep_ && !agree_overlapped()) return false;
  if (!restore_pages()) return false;
  if (drafts_may_come() && !finish_all()) return false;
  report_.begin_verb(Verb::schedule);
  const bool one_computes = forward_thread_->num_under_way() > 0;
  const Batch& batch = scheduler_.schedule(clock_.now());
  const bool is_one = !batch.empty();
  report_.set_busy(one_computes || is_one);
  if (!one_computes && !is_one) return rest_overlapped(), false;
  if (is_one) launch(batch);
  report_.begin_verb(Verb::forward);  // the forward thread samples, too
  if (one_computes) {
    Flight& finished = forward_thread_->wait();
    if (!finish(finished)) return false;
    if (is_one) await_more_requests(finished);
  }
  overlapped_.timing.begin_turn(clock_.now());
  if (!lockstep_) return true;
  if (!is_one) return network_->pulse().end(), true;
  intake();  // requests that just came count in the next step
  lockstep_->begin_agreement(propose());
  return true;
}

// Sleeps until the step under way is about to end, so that requests that come meanwhile count in
// the next step, as they do without overlap. Steps of answers alone last about as long as each
// other; beside others it does not sleep.
void RankStep::await_more_requests(const Flight& finished) {
  const Flight& now = flights_.newest();
  if (!is_of_answers(now) || !is_of_answers(finished)) return;
  const Duration remaining =
      overlapped_.timing.sleep_beside(finished, now.batch->num_rows, clock_.now());
  if (remaining > Duration{}) std::this_thread::sleep_for(remaining);
}

// The verb agree. Returns false if ranks were lost.
bool RankStep::agree_overlapped() {
  if (!joined_) return false;  // the intake has seen that ranks were lost
  report_.begin_verb(Verb::agree);
  if (!lockstep_->finish_agreement(propose())) return give_up(nullptr), false;
  // Waits beside a pass cost nothing.
  if (lockstep_->carrier().is_here()) report_.add_agreement_wait(watch_.take_waited());
  overlap_.note_reports(*lockstep_);
  return true;
}

void RankStep::rest_overlapped() {
  if (lockstep_) network_->pulse().end();
  publish_idle();
}

void RankStep::launch(const Batch& batch) {
  pending_prompt_rows_ = batch.pending_tokens;
  drafts_.note_scheduled(batch);
  report_.begin_verb(Verb::prepare);
  Flight& flight = flights_.take();
  flight.agreed = agreed();
  flight.move = experts_.take_move();
  flight.after_rest = std::exchange(overlapped_.after_rest, false);
  prepare(batch, prepare_options(), flight);
  if (lockstep_) lockstep_->carrier().lend();
  forward_thread_->launch(flight);
  overlapped_.timing.note_launch(clock_.now());
}

// Computes a step on the forward thread. The exchange with other ranks, its watch and the ledger
// are this thread's during the pass, and so is the ledger at all times.
void RankStep::compute_ahead(Flight& flight, std::span<const SampledToken> before) {
  Ledger& ledger = overlap_.ledger();
  overlapped_.between.reset();
  if (flight.after_rest) overlap_.drop();
  overlap_.begin();
  report_.begin_ahead(Verb::forward);
  if (lockstep_) {
    network_->pulse().begin(flight.agreed.pass.step, flight.agreed.hung_after);
    watch_.book_in(&ledger);
  }
  forward(flight, before, tools());
  flight.exchange_wait = watch_.take_waited();
  flight.account = overlap_.end();
  if (lockstep_) {
    watch_.book_in(nullptr);
    lockstep_->carrier().give_back();
  }
  report_.begin_ahead(Verb::sample);
  if (flight.lost) {
    flight.sampled.assign(flight.samples.size(), {.failed = true});
  } else {
    const Ledger::OtherWork other(&ledger, "sample");
    sample(flight, tools());
  }
  report_.begin_ahead(Verb::rest);
  overlapped_.between.emplace(&ledger, "wait for a step");
}

bool RankStep::drafts_may_come() {
  if (drafts_.speculation() == nullptr || forward_thread_->num_under_way() == 0) return false;
  if (flights_.newest().batch->num_drafts > 0) return true;
  return scheduler_.forecast_next_step().num_decoding > 0 && drafts_.speculation()->wants_tokens();
}

// Commits and answers a step that was computed. Returns false if ranks were lost in it.
bool RankStep::finish(Flight& flight) {
  if (flight.lost) {
    lockstep_->fail_with(*flight.lost);
    return give_up(&flight), false;
  }
  report_.add_exchange_wait(flight.exchange_wait);
  overlap_.take(flight.account);
  if (lockstep_) lockstep_->note_took(flight.agreed.pass.phase, flight.took());
  commit(flight);
  reply(flight);
  return true;
}

bool RankStep::finish_all() {
  while (forward_thread_ && forward_thread_->num_under_way() > 0)
    if (!finish(forward_thread_->wait())) return false;
  return true;
}

// Gives up all steps under way, because ranks were lost; `failed` is one that was waited for. The
// passes end by themselves: the first error of the exchange ends all its waits. A step that was
// computed to its end before that counts, since grammars have taken its tokens.
void RankStep::give_up(const Flight* failed) {
  std::array<const Batch*, ForwardThread::kMaxSteps> open{};
  size_t num_open = 0;
  if (failed != nullptr) open.at(num_open++) = failed->batch;
  while (forward_thread_->num_under_way() > 0) {
    Flight& flight = forward_thread_->wait();
    if (num_open == 0 && !flight.lost) {
      overlap_.take(flight.account);
      commit(flight);
      reply(flight);
    } else {
      open.at(num_open++) = flight.batch;
    }
  }
  abort_step(std::span(open).first(num_open));
}

}  // namespace hocket
