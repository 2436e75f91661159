#include "server/reply/reply.h"

#include <utility>

#include "server/access/client_key.h"
#include "server/generation/api.h"
#include "server/http/error_map.h"
#include "server/observe/request_recorder.h"
#include "server/reply/reply_job.h"

namespace hocket {

ReplyService::ReplyService(Options options)
    : options_(options),
      table_(options.max_live),
      writer_({.engine = options.engine,
               .table = &table_,
               .metrics = options.metrics,
               .stream_records = options.stream_records}),
      turns_(options.outbox, table_, writer_) {}

ReplyService::~ReplyService() {
  stop();
}

void ReplyService::stop() {
  turns_.stop();
  cut_off();
}

void ReplyService::cut_off(std::string_view why) {
  for (const auto& [job, choice] : table_.entries()) {
    MutexLock lock(job->mutex);
    if (!job->is_over)
      writer_.fail_job(*job, error(ErrorCode::shutting_down, "the server is shutting down{}{}",
                                   why.empty() ? "" : ": ", why)
                                 .with_fix("ask another server, or again when this one is back"));
  }
}

// Errors: those of RequestMemory::take and ReplyTable::add.
Result<void> ReplyService::enter(const JobPtr& job) {
  job->bytes = job->bytes_at_begin();
  HOCKET_TRY_VOID(job->held.grow(job->bytes));
  return table_.add(job);
}

void ReplyService::begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                         std::shared_ptr<RequestRecorder> recorder) {
  begin(std::make_shared<ReplyJob>(exchange, std::move(prepared), std::move(recorder)), exchange);
}

void ReplyService::resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                          std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent) {
  const auto job = std::make_shared<ReplyJob>(exchange, std::move(prepared), std::move(recorder));
  sent.choices.resize(job->of_choice.size());
  job->sent_before_loss = std::move(sent);
  begin(job, exchange);
}

void ReplyService::resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
                          std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent,
                          StreamPosition has) {
  const auto job = std::make_shared<ReplyJob>(exchange, std::move(prepared), std::move(recorder));
  sent.choices.resize(job->of_choice.size());
  job->sent_before_loss = std::move(sent);
  job->client_has = std::move(has);
  begin(job, exchange);
}

void ReplyService::take_over(const StreamRecord& record) {
  for (const auto& [job, choice] : table_.entries()) {
    if (job->answer.prepared.stream_record.get() != &record) continue;
    MutexLock lock(job->mutex);
    if (!job->is_over)
      writer_.fail_job(*job,
                       error(ErrorCode::taken_over, "another connection continues this stream")
                           .with_fix("read it there"));
  }
}

void ReplyService::begin(const JobPtr& job, const std::shared_ptr<HttpExchange>& exchange) {
  if (auto entered = enter(job); !entered) return writer_.refuse(*job, *exchange, entered.error());
  std::string accepted;
  {
    MutexLock lock(job->mutex);
    if (job->is_over) return;  // it was cut off
    try {
      if (auto taken = submit(*job); !taken) return writer_.fail_job(*job, taken.error());
      accepted = job->answer.prepared.request.api->format().accepted(job->answer);
    } catch (...) {
      return writer_.fail_by_exception(*job);
    }
    if (!accepted.empty()) job->exchange.reset();
  }
  if (!accepted.empty()) {
    exchange->outlive_answer();
    exchange->respond(200, kJsonType, accepted);
    return;
  }
  try {
    exchange->on_close([engine = options_.engine, weak = std::weak_ptr(job)] {
      if (const auto left = weak.lock()) abort_all_of(*engine, *left);
    });
  } catch (...) {  // the thread `reply` may be answering already, so only abort
    abort_all_of(*options_.engine, *job);
  }
}

Result<void> ReplyService::submit(const ReplyJob& job) {
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

size_t ReplyService::abort(std::string_view rid, std::string_view who) {
  size_t aborted = 0;
  for (const auto& [job, choice] : table_.entries()) {
    const Answer& answer = job->answer;
    const bool named = answer.prepared.id == rid || job->prompt_of(choice).rid == rid;
    if (!named || (!who.empty() && answer.prepared.request.who != who)) continue;
    options_.engine->abort(job->of_choice[choice].id);
    ++aborted;
  }
  return aborted;
}

}  // namespace hocket
