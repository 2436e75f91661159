#include "server/reply/reply_writer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/access/request_meter.h"
#include "server/generation/api.h"
#include "server/http/error_map.h"
#include "server/observe/request_recorder.h"
#include "server/reply/reply_job.h"

namespace hocket {

ReplyWriter::ReplyWriter(const Options& options) : options_(options) {
  HOCKET_CHECK(options_.engine != nullptr);
}

bool ReplyWriter::step(ReplyJob& job) {
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

void ReplyWriter::take(ReplyJob& job, size_t index, RequestOutput&& output) {
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

void ReplyWriter::add_token(ReplyJob& job, size_t index, RequestOutput& output) {
  ChoiceAnswer& choice = job.answer.choices[index];
  const TimePoint t = RealClock().now();
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
  if (StreamRecord* const record = record_of(job.answer.prepared))
    options_.stream_records->add_token(*record, index, choice.ids.size() - 1, output.token);
  if (job.prompt_of(index).sampling.num_top_logprobs >= 0)
    choice.logprobs.push_back(output.logprobs ? std::move(*output.logprobs) : PositionLogprobs{});
  const bool is_stop_token = output.summary && output.summary->finish == FinishReason::stop &&
                             output.summary->matched_stop == output.token;
  if (is_stop_token && job.answer.prepared.request.stop_text == StopText::trim) return;
  const auto ends = job.of_choice[index].text.add(output.token, choice);
  if (!ends) return fail_job(job, ends.error());
  if (*ends && !output.summary) options_.engine->finish_whole(job.of_choice[index].id);
}

void ReplyWriter::end_choice(ReplyJob& job, size_t index, RequestSummary& summary) {
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
  job.answer.ended = RealClock().now();
  ++job.num_ended;
  observe_end(summary);
}

// Writes some log-probabilities as JSON, or sends one block of the stream. When all is sent or left
// out, the job may take its next output.
void ReplyWriter::send_next(ReplyJob& job, size_t index) {
  const ApiFormat& format = job.answer.prepared.request.api->format();
  ChoiceAnswer& choice = job.answer.choices[index];
  job.of_choice[index].text.count_shown(choice);
  const bool all_written =
      write_logprobs(format, job.answer, choice, job.written[index], kPositionsAtOnce);
  if (auto counted = job.count(index); !counted) return fail_job(job, counted.error());
  if (!all_written) return;
  const bool left_out = job.stream && format.repeats() && !choice.ended &&
                        job.stream->num_waiting() > ReplyJob::kMaxWaiting;
  if (job.stream && !left_out) {
    const std::string block = format.next_block(job.answer, choice, job.written);
    if (!block.empty()) return send_block(job, choice.index, block);
  }
  job.sending.reset();
  if (choice.ended) options_.table->erase(job.of_choice[index].id);
  if (job.num_ended == job.answer.choices.size()) finish(job, format);
}

// Sends the block. If the request may hold no more memory, the stream ends with the error event of
// the answer's format, since the exchange's own error event would know only the API and not this
// answer.
void ReplyWriter::send_block(ReplyJob& job, int choice, const std::string& block) {
  const std::string events = job.events_of(choice, block);
  if (job.was_sent(choice) || events.empty()) return;
  if (auto room = HeldBytes(job.answer.prepared.request.memory).grow(std::ssize(events)); !room)
    return fail_job(job, room.error());
  const bool with_progress = job.answer.prepared.sends_progress;
  if (!job.stream->events(with_progress ? job.with_progress(choice, events) : events))
    drop_job(job);
}

void ReplyWriter::finish(ReplyJob& job, const ApiFormat& format) {
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
  // An answer that was aborted is not computed again when its client connects again.
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

void ReplyWriter::observe_end(const RequestSummary& summary) {
  if (options_.metrics != nullptr) options_.metrics->observe_finished(summary);
}

void ReplyWriter::fail_job(ReplyJob& job, const Error& failure) {
  job.is_over = true;
  job.end_meter();
  abort_all_of(*options_.engine, job);
  options_.table->erase_all_of(job);
  const ApiFormat& format = job.answer.prepared.request.api->format();
  format.ended(job.answer, &failure);
  const bool resumable = failure.code == ErrorCode::lost_rank ||
                         failure.code == ErrorCode::taken_over ||
                         failure.code == ErrorCode::shutting_down || job.client_has;
  resumable ? set_record_state(job, StreamState::left) : erase_record(job);
  if (job.recorder) job.recorder->failed(failure);
  job.held.release();  // makes room for the error
  if (job.exchange == nullptr) return;
  if (!job.stream) {
    respond_error(*job.exchange, failure);
    return;
  }
  std::string last;
  if (job.stream->started()) last = format.failure_block(job.answer, job.written, failure);
  if (last.empty())
    job.stream->error(failure);
  else if (job.stream->events(last))
    job.stream->finish();
}

void ReplyWriter::drop_job(ReplyJob& job) {
  job.is_over = true;
  abort_all_of(*options_.engine, job);
  options_.table->erase_all_of(job);
  set_record_state(job, StreamState::left);
  if (job.recorder) job.recorder->ended(job.answer, kClientLeft);
}

void ReplyWriter::fail_by_exception(ReplyJob& job) {
  try {
    fail_job(job, error_of_exception("answer " + job.answer.prepared.id));
  } catch (...) {  // no memory for the error either: without a holder the exchange ends by itself
    job.is_over = true;
    job.stream.reset();
    job.exchange.reset();
  }
}

void ReplyWriter::refuse(const ReplyJob& job, HttpExchange& exchange, const Error& why) {
  if (job.recorder) job.recorder->failed(why);
  job.client_has ? set_record_state(job, StreamState::left) : erase_record(job);
  respond_error(exchange, why);
}

void ReplyWriter::set_record_state(const ReplyJob& job, StreamState state) {
  if (StreamRecord* const record = record_of(job.answer.prepared))
    options_.stream_records->set_state(*record, state);
}

void ReplyWriter::erase_record(const ReplyJob& job) {
  if (StreamRecord* const record = record_of(job.answer.prepared))
    options_.stream_records->erase(*record);
}

}  // namespace hocket
