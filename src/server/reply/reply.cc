#include "server/reply/reply.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/queue_limits.h"
#include "server/access/client_key.h"
#include "server/generation/api.h"
#include "server/http/error_map.h"
#include "server/observe/request_recorder.h"
#include "server/reply/reply_job.h"

namespace hocket {

ReplyService::ReplyService(Options options) : options_(options) {
  HOCKET_CHECK(options_.engine != nullptr && options_.outbox != nullptr);
  table_.reserve(options_.max_live);
  thread_ = Thread({.name = "reply"}, [this] { run(); });
}

ReplyService::~ReplyService() {
  stop();
}

void ReplyService::stop() {
  stopping_ = true;
  options_.outbox->wake();
  if (thread_.joinable()) thread_.join();
  cut_off();
}

void ReplyService::cut_off(std::string_view why) {
  std::vector<std::shared_ptr<Job>> left;
  {
    MutexLock lock(mutex_);
    for (auto& [id, to] : table_) left.push_back(to.job);
  }
  for (const auto& job : left) {
    MutexLock lock(job->mutex);
    if (!job->is_over)
      fail_job(*job, error(ErrorCode::shutting_down, "the server is shutting down{}{}",
                           why.empty() ? "" : ": ", why)
                         .with_fix("ask another server, or again when this one is back"));
  }
}

size_t ReplyService::num_live() const {
  MutexLock lock(mutex_);
  return table_.size();
}

std::vector<LiveText> ReplyService::live_texts(size_t max_texts) const {
  std::vector<std::pair<RequestId, JobChoice>> entries;
  {
    MutexLock lock(mutex_);
    for (const auto& entry : table_) entries.push_back(entry);
  }
  const auto oldest = entries.begin() + static_cast<ptrdiff_t>(std::min(max_texts, entries.size()));
  std::ranges::partial_sort(entries, oldest, {}, [](const auto& entry) { return entry.first; });
  std::vector<LiveText> texts;
  for (auto entry = entries.begin(); entry != oldest; ++entry) {
    const JobChoice& to = entry->second;
    const int generated = to.job->of_choice[to.choice].num_generated;
    texts.push_back(live_text(to.job->answer, to.choice, entry->first, generated));
  }
  return texts;
}

// Adds the job to the table. Errors: those of RequestMemory::take; queue_full, unless the rank that
// had the answer was lost, since it was within the limit there.
Result<void> ReplyService::enter(const JobPtr& job) {
  job->bytes = job->bytes_at_begin();
  HOCKET_TRY_VOID(job->held.grow(job->bytes));
  MutexLock lock(mutex_);
  if ((!job->sent_before_loss || job->client_has) &&
      table_.size() + job->of_choice.size() > options_.max_live)
    return fail(queue_full(queue_limits::kLiveTexts, options_.max_live));
  try {
    for (size_t i = 0; i < job->of_choice.size(); ++i)
      table_.emplace(job->of_choice[i].id, JobChoice{job, i});
  } catch (...) {
    for (const auto& choice : job->of_choice) table_.erase(choice.id);
    throw;
  }
  return {};
}

void ReplyService::begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                         std::shared_ptr<RequestRecorder> recorder) {
  begin(std::make_shared<Job>(exchange, std::move(prepared), std::move(recorder)), exchange);
}

void ReplyService::resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                          std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent) {
  const auto job = std::make_shared<Job>(exchange, std::move(prepared), std::move(recorder));
  sent.choices.resize(job->of_choice.size());
  job->sent_before_loss = std::move(sent);
  begin(job, exchange);
}

void ReplyService::resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                          std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent,
                          StreamPosition has) {
  const auto job = std::make_shared<Job>(exchange, std::move(prepared), std::move(recorder));
  sent.choices.resize(job->of_choice.size());
  job->sent_before_loss = std::move(sent);
  job->client_has = std::move(has);
  begin(job, exchange);
}

void ReplyService::take_over(const StreamRecord& record) {
  std::vector<JobPtr> found;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, to] : table_)
      if (to.job->answer.prepared.stream_record.get() == &record) found.push_back(to.job);
  }
  for (const JobPtr& job : found) {
    MutexLock lock(job->mutex);
    if (!job->is_over)
      fail_job(*job, error(ErrorCode::taken_over, "another connection goes on with this stream")
                         .with_fix("read it there"));
  }
}

void ReplyService::set_record_state(const Job& job, StreamState state) {
  if (const auto& record = job.answer.prepared.stream_record)
    options_.stream_records->set_state(*record, state);
}

void ReplyService::erase_record(const Job& job) {
  if (const auto& record = job.answer.prepared.stream_record)
    options_.stream_records->erase(*record);
}

void ReplyService::begin(const JobPtr& job, const std::shared_ptr<HttpExchange>& exchange) {
  if (auto entered = enter(job); !entered) {
    if (job->recorder) job->recorder->failed(entered.error());
    job->client_has ? set_record_state(*job, StreamState::left) : erase_record(*job);
    respond_error(*exchange, entered.error());
    return;
  }
  std::string accepted;
  {
    MutexLock lock(job->mutex);
    if (job->is_over) return;  // it was cut off
    try {
      if (auto taken = submit(*job); !taken) return fail_job(*job, taken.error());
      accepted = job->answer.prepared.request.api->format().accepted(job->answer);
    } catch (...) {
      return fail_by_exception(*job);
    }
    if (!accepted.empty()) job->exchange.reset();
  }
  if (!accepted.empty()) {
    exchange->leave_meter();
    exchange->respond(200, kJsonType, accepted);
    return;
  }
  try {
    exchange->on_close([this, weak = std::weak_ptr(job)] {
      if (const auto left = weak.lock()) abort_all_of(*left);
    });
  } catch (...) {  // the thread `reply` may be answering already, so only abort
    abort_all_of(*job);
  }
}

Result<void> ReplyService::submit(const Job& job) {
  const GenerationRequest& request = job.answer.prepared.request;
  const CacheNamespace cache_namespace = cache_namespace_of(request);
  const SessionKey session = session_key_of(request.cache_owner, request.session);
  int i = 0;
  for (size_t c = 0; c < job.of_choice.size(); ++c) {
    const ChoiceAnswer& choice = job.answer.choices[c];
    i = c > 0 && job.answer.choices[c - 1].prompt == choice.prompt ? i + 1 : 0;
    const Prompt& prompt = job.prompt_of(c);
    RequestInput input;
    input.id = job.of_choice[c].id;
    input.prompt = job.answer.prepared.prompts[static_cast<size_t>(choice.prompt)];
    input.sampling = prompt.sampling;
    input.sampling.seed = choice_seed(prompt.sampling.seed, i);
    input.priority = request.priority;
    input.client = request.client;
    input.routing_key = name_key("routing_key", request.routing_key);
    input.cache_namespace = cache_namespace;
    input.session = session;
    input.prefill_peer = request.prefill_peer;
    input.prediction = job.answer.prepared.prediction;
    input.arrived = RealClock().now();
    input.index_in_request = static_cast<int>(c);
    if (job.sent_before_loss) {
      input.answer = job.known_answer(c, options_.engine->info().model.vocab_size);
      input.taken_over = true;
    }
    HOCKET_TRY_VOID(options_.engine->submit(std::move(input)));
  }
  return {};
}

void ReplyService::abort_all_of(const Job& job) {
  for (const auto& choice : job.of_choice) options_.engine->abort(choice.id);
}

void ReplyService::forget(const Job& job) {
  MutexLock lock(mutex_);
  for (const auto& choice : job.of_choice) table_.erase(choice.id);
}

size_t ReplyService::abort(std::string_view rid, std::string_view who) {
  std::vector<RequestId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, to] : table_) {
      const Answer& answer = to.job->answer;
      const bool named = answer.prepared.id == rid || to.job->prompt_of(to.choice).rid == rid;
      if (named && (who.empty() || answer.prepared.request.who == who)) ids.push_back(id);
    }
  }
  for (const RequestId id : ids) options_.engine->abort(id);
  return ids.size();
}

void ReplyService::fail_job(Job& job, const Error& failure) {
  job.is_over = true;
  job.end_meter();
  abort_all_of(job);
  forget(job);
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

void ReplyService::drop_job(Job& job) {
  job.is_over = true;
  abort_all_of(job);
  forget(job);
  set_record_state(job, StreamState::left);
  if (job.recorder) job.recorder->ended(job.answer, kClientLeft);
}

void ReplyService::fail_by_exception(Job& job) {
  try {
    fail_job(job, error_of_exception("answer " + job.answer.prepared.id));
  } catch (...) {  // no memory for the error either: without a holder the exchange ends by itself
    job.is_over = true;
    job.stream.reset();
    job.exchange.reset();
  }
}

}  // namespace hocket
