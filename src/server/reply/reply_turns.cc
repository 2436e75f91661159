// The turns of ReplyService. All functions run on the thread `reply`.
#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "server/generation/api.h"
#include "server/observe/request_recorder.h"
#include "server/reply/reply_job.h"
#include "server/usage/request_meter.h"

namespace hocket {
namespace {

constexpr Duration kIdle = std::chrono::milliseconds(200);    // longest wait for an output
constexpr Duration kLocked = std::chrono::microseconds(200);  // longest wait while a job is locked

TimePoint now() {
  return RealClock().now();
}

}  // namespace

void ReplyService::run() {
  while (!stopping_) {
    if (first_line_.empty() && second_line_.empty()) {
      const Duration wait = std::clamp(pause_end_ - now(), Duration{}, kIdle);
      if (auto output = options_.outbox->wait_pop(locked_.empty() ? wait : kLocked))
        hand_out(*std::move(output));
    }
    collect();
    give_turns();
  }
}

void ReplyService::collect() {
  while (auto output = options_.outbox->pop()) hand_out(*std::move(output));
}

void ReplyService::hand_out(RequestOutput&& output) {
  JobChoice to;
  {
    MutexLock lock(mutex_);
    const auto found = table_.find(output.id);
    if (found == table_.end()) return;  // its job was dropped
    to = found->second;
  }
  Job& job = *to.job;
  try {
    job.pending.add(to.choice, std::move(output), job.pending_bytes(to.choice));
  } catch (...) {
    job.pending.set_out_of_memory();  // its next turn fails the job
  }
  if (job.in_line) return;
  job.in_line = true;
  try {
    first_line_.push_back(to.job);
  } catch (const std::bad_alloc&) {
    turn(to.job);  // it is in no line, and there may be no later output
  }
}

// Lets jobs whose pause is over join the first line.
void ReplyService::end_pauses() {
  const TimePoint t = now();
  if (t < pause_end_) return;
  const auto over = std::ranges::stable_partition(
      paused_, [t](const JobPtr& job) { return t < job->pause.until(); });
  first_line_.insert(first_line_.end(), over.begin(), over.end());
  paused_.erase(over.begin(), over.end());
  pause_end_ = TimePoint::max();
  for (const JobPtr& job : paused_) pause_end_ = std::min(pause_end_, job->pause.until());
}

// locked_       d         joins first_line_ again
// paused_      r         the same, when its client may have read
// first_line_   a b c d   one turn each; a job that needs another one goes to second_line_
// second_line_  x y       one turn, for x
void ReplyService::give_turns() {
  try {
    first_line_.insert(first_line_.end(), locked_.begin(), locked_.end());
    locked_.clear();
    end_pauses();
  } catch (const std::bad_alloc&) {
    collect();  // the outbox is emptied anyway; jobs in locked_ stay there
  }
  const auto next_of = [this](std::deque<JobPtr>& line) {
    const JobPtr job = std::move(line.front());
    line.pop_front();
    turn(job);
    collect();
  };
  for (size_t n = first_line_.size(); n > 0; --n) next_of(first_line_);
  if (!second_line_.empty()) next_of(second_line_);
}

void ReplyService::turn(const JobPtr& job) {
  if (!job->mutex.try_lock()) {
    try {
      return locked_.push_back(job);
    } catch (const std::bad_alloc&) {  // no memory to come back later, so wait here:
      job->mutex.lock();               // begin() holds the lock only briefly
    }
  }
  const MutexLock lock(job->mutex, std::adopt_lock);
  try {
    const TimePoint end = now() + kTurn;
    do {
      if (job->waits_for_client()) {
        pause_end_ = std::min(pause_end_, job->pause.begin(now()));
        return paused_.push_back(job);
      }
      job->pause.end();
      if (now() >= end) return second_line_.push_back(job);
    } while (step(*job));
  } catch (...) {
    fail_by_exception(*job);
    job->pending.clear();
  }
  job->in_line = false;
}

// Does a small piece of a job's work. Returns false if there was none.
bool ReplyService::step(Job& job) {
  if (!job.is_over && job.pending.refused()) fail_job(job, *job.pending.refused());
  if (!job.is_over && job.pending.out_of_memory()) throw std::bad_alloc();
  if (job.is_over) {
    job.pending.clear();
    return false;
  }
  if (job.sending) {
    send_next(job, *job.sending);
    return true;
  }
  if (job.pending.empty()) return false;
  PendingOutputs::Output first = job.pending.take_first();
  take(job, first.choice, std::move(first.output));
  return true;
}

void ReplyService::take(Job& job, size_t index, RequestOutput&& output) {
  ChoiceAnswer& choice = job.answer.choices[index];
  if (output.prompt_logprobs) choice.prompt_logprobs = std::move(*output.prompt_logprobs);
  if (value(output.token) >= 0) add_token(job, index, output);
  if (job.is_over) {
    if (output.summary) observe_end(*output.summary);
    return;
  }
  if (output.summary) {
    const RequestSummary& s = *output.summary;
    ended_.note(job.answer, index, s);
    const bool cut_off =
        s.finish == FinishReason::abort && s.error.code == ErrorCode::shutting_down;
    if (s.finish == FinishReason::error || cut_off) {
      observe_end(s);
      return fail_job(job, s.error);
    }
    end_choice(job, index, *output.summary);
    if (job.is_over) return;
  }
  job.sending = index;
}

void ReplyService::add_token(Job& job, size_t index, RequestOutput& output) {
  ChoiceAnswer& choice = job.answer.choices[index];
  const TimePoint t = now();
  if (job.answer.first_token == TimePoint{}) job.answer.first_token = t;
  if (options_.metrics != nullptr && !output.known) {
    if (job.of_choice[index].last_token == TimePoint{})
      options_.metrics->observe_first_token(t - job.answer.prepared.received);
    else
      options_.metrics->observe_inter_token(t - job.of_choice[index].last_token);
  }
  job.of_choice[index].last_token = t;
  const bool whole = std::holds_alternative<std::string>(choice.matched_stop) ||
                     job.of_choice[index].text.calls_done();
  // A request may compute more tokens than its answer has (num_prefill_tokens()).
  const std::optional<int> most = job.prompt_of(index).max_tokens;
  if (whole || (most && std::cmp_greater_equal(choice.ids.size(), *most))) return;

  if (const auto& meter = job.answer.prepared.request.meter; meter && !output.known)
    meter->take_tokens(1);
  choice.ids.push_back(output.token);
  ++job.of_choice[index].num_generated;
  if (job.answer.prepared.stream_record)
    options_.stream_records->add_token(*job.answer.prepared.stream_record, index,
                                       choice.ids.size() - 1, output.token);
  if (job.prompt_of(index).sampling.num_top_logprobs >= 0)
    choice.logprobs.push_back(output.logprobs ? std::move(*output.logprobs) : PositionLogprobs{});
  const bool is_stop_token = output.summary && output.summary->finish == FinishReason::stop &&
                             output.summary->matched_stop == output.token;
  if (is_stop_token && job.answer.prepared.request.stop_text == StopText::trim) return;
  const auto ends = job.of_choice[index].text.add(output.token, choice);
  if (!ends) return fail_job(job, ends.error());
  if (*ends && !output.summary) options_.engine->finish_whole(job.of_choice[index].id);
}

void ReplyService::end_choice(Job& job, size_t index, RequestSummary& summary) {
  ChoiceAnswer& choice = job.answer.choices[index];
  AnswerText& text = job.of_choice[index].text;
  const auto finished = text.finish(choice);
  for (const std::string& warning : text.warnings())
    log::warning("answer {}: {}", job.answer.prepared.id, warning);
  if (!finished) {
    observe_end(summary);
    return fail_job(job, finished.error());
  }
  if (std::holds_alternative<std::string>(choice.matched_stop) || text.calls_done()) {
    choice.finish = FinishReason::stop;
  } else {
    choice.finish = summary.finish;
    if (summary.finish == FinishReason::stop && value(summary.matched_stop) >= 0)
      choice.matched_stop = summary.matched_stop;
    // A token behind the last one of the answer is none of it (num_prefill_tokens()).
    const std::optional<int> most = job.prompt_of(index).max_tokens;
    const bool is_cut = most && std::cmp_greater_equal(choice.ids.size(), *most) &&
                        (choice.ids.empty() || choice.ids.back() != summary.matched_stop);
    if (is_cut && summary.finish == FinishReason::stop) {
      choice.finish = FinishReason::length;
      choice.matched_stop = std::monostate{};
    }
  }
  choice.ended = true;
  choice.cached_tokens = summary.cached_tokens;
  choice.fetched_tokens = summary.fetched_tokens;
  choice.recomputed_tokens = summary.recomputed_tokens;
  choice.num_retractions = summary.num_retractions;
  choice.drafts = summary.drafts;
  choice.rank = summary.rank;
  choice.times = summary.times;
  choice.routed = std::move(summary.routed);
  job.answer.last_ended = index;
  job.answer.ended = now();
  ++job.num_ended;
  observe_end(summary);
}

// Writes some log-probabilities as JSON, or sends one block of the stream. When all is sent or left
// out, the job may take its next output.
void ReplyService::send_next(Job& job, size_t index) {
  const ApiFormat& format = job.answer.prepared.request.api->format();
  ChoiceAnswer& choice = job.answer.choices[index];
  job.of_choice[index].text.count_shown(choice);
  const bool all_written =
      write_logprobs(format, job.answer, choice, job.written[index], kPositionsAtOnce);
  if (auto counted = job.count(index); !counted) return fail_job(job, counted.error());
  if (!all_written) return;
  const bool left_out = job.stream && format.repeats() && !choice.ended &&
                        job.stream->num_waiting() > Job::kMaxWaiting;
  if (job.stream && !left_out) {
    const std::string block = format.next_block(job.answer, choice, job.written);
    if (!block.empty()) return send_block(job, choice.index, block);
  }
  job.sending.reset();
  if (choice.ended) {
    MutexLock lock(mutex_);
    table_.erase(job.of_choice[index].id);
  }
  if (job.num_ended == job.answer.choices.size()) finish(job, format);
}

// Sends the block. If the request may hold no more memory, the stream ends with the error event of
// the answer's format, since the exchange's own error event would know only the API and not this
// answer.
void ReplyService::send_block(Job& job, int choice, const std::string& block) {
  const std::string events = job.events_of(choice, block);
  if (job.was_sent(choice) || events.empty()) return;
  if (auto room = HeldBytes(job.answer.prepared.request.memory).grow(std::ssize(events)); !room)
    return fail_job(job, room.error());
  const bool with_progress = job.answer.prepared.sends_progress;
  if (!job.stream->events(with_progress ? job.with_progress(choice, events) : events))
    drop_job(job);
}

void ReplyService::finish(Job& job, const ApiFormat& format) {
  if (job.stream) {
    const std::string block = format.closing_block(job.answer);
    if (!block.empty()) send_block(job, kClosingBlock, block);
    if (job.is_over) return;
  }
  job.is_over = true;
  job.end_meter();
  format.ended(job.answer, nullptr);
  const bool left = job.exchange != nullptr && job.exchange->is_closed();
  if (job.recorder) job.recorder->ended(job.answer, left ? kClientLeft : 200);
  // An answer that was aborted is not computed again when its client comes back.
  const bool aborted = std::ranges::any_of(job.answer.choices, [](const ChoiceAnswer& choice) {
    return choice.finish == FinishReason::abort;
  });
  if (left || !aborted)
    set_record_state(job, left ? StreamState::left : StreamState::ended);
  else
    erase_record(job);
  if (job.exchange == nullptr) return;
  if (!job.stream)
    job.exchange->respond(200, kJsonType, format.whole(job.answer, job.written));
  else if (format.style() == StreamStyle::named)
    job.stream->finish();
  else
    job.stream->done();
}

void ReplyService::observe_end(const RequestSummary& summary) {
  if (options_.metrics != nullptr) options_.metrics->observe_finished(summary);
}

}  // namespace hocket
