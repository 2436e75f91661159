#include "engine/speculation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

Speculation::Speculation(Options options)
    : grammars_(options.grammars),
      drafts_ahead_(options.drafter->drafts_ahead()),
      gate_({.drafter = std::move(options.drafter),
             .free = std::move(options.free),
             .num_seats = options.num_seats,
             .max_drafts = options.max_drafts,
             .fixed = options.fixed}),
      overlap_(options.fixed.has_value()) {
  for (int seat = options.num_seats; seat-- > 0;) free_seats_.push_back(seat);
  gate_answers_.reserve(free_seats_.size());
  seated_.resize(free_seats_.size());
}

int Speculation::seat_of(RequestId id) const {
  const auto found = seats_.find(id);
  return found == seats_.end() ? -1 : found->second;
}

// A request that was sent back to the queue keeps its seat, and what was learnt from it, until
// another request needs the seat.
void Speculation::seat(const Request& request) {
  if (seats_.contains(request.id)) return;
  if (free_seats_.empty()) free_a_waiting_seat();
  if (free_seats_.empty()) return;
  const int seat = free_seats_.back();
  free_seats_.pop_back();
  seats_.emplace(request.id, seat);
  seated_[static_cast<size_t>(seat)] = &request;
  gate_.begin(seat, request.prompt_len + request.sampling.max_new_tokens);
}

void Speculation::free_a_waiting_seat() {
  const auto waits = [this](const auto& entry) {
    return at(entry.second).state == Request::State::waiting;
  };
  const auto found = std::ranges::find_if(seats_, waits);
  if (found == seats_.end()) return;
  gate_.end(found->second);
  free_seats_.push_back(found->second);
  seats_.erase(found);
}

void Speculation::take_seat(const Request& request) {
  const MutexLock lock(mutex_);
  seat(request);
}

void Speculation::forget(RequestId id) {
  const MutexLock lock(mutex_);
  const auto found = seats_.find(id);
  if (found == seats_.end()) return;
  gate_.end(found->second);
  free_seats_.push_back(found->second);
  seats_.erase(found);
}

void Speculation::offer(std::span<AnswerDrafts> answers, const DraftedStep& drafted) {
  const MutexLock lock(mutex_);
  gate_answers_.clear();
  // note() finds the step decode-only under the same conditions.
  SpeculationGate::Offer step{.max_rows = drafted.max_rows,
                              .num_other_answers = drafted.num_other_answers,
                              .num_other_drafts = drafted.num_other_drafts,
                              .number = drafted.number,
                              .is_decode_only = !drafted.has_prompts && last_end_.has_value() &&
                                                followed_ != FollowedRows::prompts,
                              .last_was_noted = last_end_.has_value() && is_last_noted_};
  for (const AnswerDrafts& answer : answers) {
    const Request& request = *answer.request;
    step.total_keys += request.len();
    step.is_decode_only &= answer.rows == 1;
    const int seat = seat_of(request.id);
    if (seat >= 0) seated_[static_cast<size_t>(seat)] = &request;
    gate_answers_.push_back({.seat = seat,
                             .tokens = request.tokens,
                             .max_drafts = overlap_.may_draft() ? answer.max_drafts : 0});
  }
  if (grammars_ != nullptr) grammars_->begin_checks();
  const auto is_ending = [](const AnswerDrafts& answer) {
    return answer.request->remaining_new_tokens() <= 1;
  };
  const bool ends = drafts_ahead_ && std::ranges::all_of(answers, is_ending);
  if (ends)
    gate_.offer_nothing(step);
  else
    gate_.offer(step, gate_answers_);
  size_t num_drafts = 0;
  // A draft that its grammar forbids fails for sure. Only those to be verified are worth the check.
  for (size_t i = 0; i < answers.size(); ++i) {
    std::span<const TokenId> drafts = gate_answers_[i].drafts;
    if (grammars_ != nullptr)
      drafts = drafts.first(grammars_->num_allowed(*answers[i].request, drafts));
    answers[i].drafts = drafts;
    answers[i].are_predicted = gate_answers_[i].kind == NgramDrafter::kPredicted;
    num_drafts += drafts.size();
  }
  // If all answers end, the choice is an old one, which no draft follows while others do the same.
  overlap_.note_offer(static_cast<int>(num_drafts), !ends && gate_.needs_commit());
}

void Speculation::note(const Batch& batch, TimePoint now, const StepContext& context) {
  const MutexLock lock(mutex_);
  SpeculationGate::Step step{.num_answers = batch.num_answers(),
                             .num_drafts = batch.num_drafts,
                             .num_other_answers = context.num_other_answers,
                             .overlaps = batch.overlapped,
                             .follows = context.rows != FollowedRows::none,
                             .making_us = to_us(context.making)};
  const size_t num_prompts = batch.slices.size() - static_cast<size_t>(step.num_answers);
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    const Slice& slice = batch.slices[i];
    const Request& request = *slice.request;
    const bool is_running = request.finish == FinishReason::none;
    if (is_running) seat(request);
    if (i < num_prompts) continue;
    step.num_tokens += slice.num_appended;  // forced ones are computed by the next step
    step.total_keys += slice.begin + slice.len - slice.num_drafts;
    if (slice.num_drafts > 0 && is_running)
      gate_.note_answer(seat_of(request.id), slice.num_drafts, slice.num_accepted());
  }
  step.is_decode_only = num_prompts == 0 && !context.others_have_prompts &&
                        context.rows != FollowedRows::prompts && last_end_.has_value() &&
                        batch.num_rows == step.num_answers + step.num_drafts;
  step.us = last_end_ ? to_us(now - *last_end_) : 0;
  step.us *= overlap_.factor_of(step, batch.overlapped, context.overlapped_share);
  last_end_ = now;
  is_last_noted_ = step.num_answers > 0 || context.rows == FollowedRows::prompts;
  if (is_last_noted_) gate_.note_step(step);
}

SpeculationGate::DraftsAhead Speculation::ahead() const {
  const MutexLock lock(mutex_);
  return gate_.ahead();
}

GateState Speculation::state() const {
  const MutexLock lock(mutex_);
  return gate_.state();
}

}  // namespace hocket
