#include "server/reply.h"


#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/access/request_meter.h"
#include "server/error_map.h"
#include "server/observe/request_story.h"
#include "server/protocol/answer_text.h"
#include "server/ranks/client_key.h"
#include "server/wire/sse.h"

namespace hocket {
namespace {

TimePoint now() {
  return RealClock().now();
}

}  // namespace

// One HTTP request under way. Its lock is held by whoever works on it: the text thread that begins
// it, then the reply thread.
struct ReplyService::Job {
  std::mutex mutex;
  std::shared_ptr<HttpExchange> exchange;  // null: nobody waits for it (AnswerForm::accepted)
  std::optional<SseWriter> stream;
  Answer answer;
  std::vector<AnswerText> texts;      // beside answer.choices
  std::vector<RequestId> ids;         // beside answer.choices; constant
  std::vector<TimePoint> last_token;  // beside answer.choices
  size_t num_ended = 0;
  bool over = false;  // answered, or nobody listens any more

  const Prompt& prompt_of(size_t index) const {
    return answer.request.prompts[static_cast<size_t>(answer.choices[index].prompt)];
  }
};

ReplyService::ReplyService(Options options) : options_(options) {
  HOCKET_CHECK(options_.generator != nullptr && options_.outbox != nullptr);
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
  std::vector<std::shared_ptr<Job>> left;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, place] : table_) left.push_back(place.job);
  }
  for (const auto& job : left) {
    std::lock_guard lock(job->mutex);
    if (!job->over) fail_job(*job, error(ErrorCode::shutting_down, "the server is shutting down"));
  }
}

size_t ReplyService::num_live() const {
  std::lock_guard lock(mutex_);
  return table_.size();
}

std::vector<LiveText> ReplyService::look(size_t most) const {
  std::vector<std::pair<RequestId, Place>> places;
  {
    std::lock_guard lock(mutex_);
    for (const auto& entry : table_) places.push_back(entry);
  }
  const auto oldest = places.begin() + static_cast<ptrdiff_t>(std::min(most, places.size()));
  std::ranges::partial_sort(places, oldest, {}, [](const auto& entry) { return entry.first; });
  std::vector<LiveText> texts;
  for (auto entry = places.begin(); entry != oldest; ++entry) {
    const Place& place = entry->second;
    std::lock_guard lock(place.job->mutex);
    texts.push_back(live_text(place.job->answer, place.choice, entry->first));
  }
  return texts;
}

std::shared_ptr<ReplyService::Job> ReplyService::enter(
    const std::shared_ptr<HttpExchange>& exchange, Answer answer) {
  auto job = std::make_shared<Job>();
  job->exchange = exchange;
  job->answer = std::move(answer);
  const GenerationRequest& request = job->answer.request;
  if (request.stream) job->stream.emplace(job->exchange);
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    for (int i = 0; i < request.prompts[p].n; ++i) {
      ChoiceAnswer& choice = job->answer.choices.emplace_back();
      choice.index = static_cast<int>(job->answer.choices.size()) - 1;
      choice.prompt = static_cast<int>(p);
      job->texts.emplace_back(job->answer, job->answer.choices.size() - 1);
      job->ids.push_back(Engine::next_request_id());
    }
  }
  job->last_token.resize(job->ids.size());
  std::lock_guard lock(mutex_);
  if (table_.size() + job->ids.size() > options_.max_live) return nullptr;
  for (size_t i = 0; i < job->ids.size(); ++i) table_.emplace(job->ids[i], Place{job, i});
  return job;
}

void ReplyService::begin(const std::shared_ptr<HttpExchange>& exchange, Answer answer) {
  const auto story = answer.story;
  const auto job = enter(exchange, std::move(answer));
  if (job == nullptr) {
    const Error full = error(ErrorCode::queue_full, "{} texts are under way", options_.max_live)
                           .with_fix("try again after the time in Retry-After");
    if (story) story->failed(full);
    respond_error(*exchange, full);
    return;
  }
  std::string accepted;
  {
    std::lock_guard lock(job->mutex);
    const GenerationRequest& request = job->answer.request;
    const CacheNamespace cache_namespace = cache_namespace_of(request);
    int i = 0;
    for (size_t c = 0; c < job->ids.size(); ++c) {
      const ChoiceAnswer& choice = job->answer.choices[c];
      i = c > 0 && job->answer.choices[c - 1].prompt == choice.prompt ? i + 1 : 0;
      const Prompt& prompt = job->prompt_of(c);
      RequestInput input;
      input.id = job->ids[c];
      input.prompt = job->answer.prompts[static_cast<size_t>(choice.prompt)];
      input.sampling = prompt.sampling;
      input.sampling.seed = choice_seed(prompt.sampling.seed, i);
      input.priority = request.priority;
      input.client = request.client;
      input.routing_key = name_key("routing_key", request.routing_key);
      input.cache_namespace = cache_namespace;
      input.arrived = now();
      if (auto taken = options_.generator->submit(std::move(input)); !taken)
        return fail_job(*job, taken.error());
    }
    accepted = answer_form(request.api).accepted(job->answer);
    if (!accepted.empty()) job->exchange.reset();
  }
  if (!accepted.empty()) {
    exchange->respond(200, "application/json", accepted);
    return;
  }
  exchange->on_close([this, weak = std::weak_ptr(job)] {
    if (const auto left = weak.lock()) abort_all_of(*left);
  });
}

void ReplyService::abort_all_of(const Job& job) {
  for (const RequestId id : job.ids) options_.generator->abort(id);
}

void ReplyService::forget(const Job& job) {
  std::lock_guard lock(mutex_);
  for (const RequestId id : job.ids) table_.erase(id);
}

size_t ReplyService::abort(std::string_view rid, std::string_view who) {
  std::vector<RequestId> ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, place] : table_) {
      const Answer& answer = place.job->answer;
      const bool named = answer.id == rid || place.job->prompt_of(place.choice).rid == rid;
      if (named && (who.empty() || answer.request.who == who)) ids.push_back(id);
    }
  }
  for (const RequestId id : ids) options_.generator->abort(id);
  return ids.size();
}

void ReplyService::run() {
  while (!stopping_) {
    auto output = options_.outbox->wait_pop(std::chrono::milliseconds(200));
    while (output) {
      take(std::move(*output));
      output = options_.outbox->pop();
    }
  }
}

void ReplyService::take(RequestOutput&& output) {
  Place place;
  {
    std::lock_guard lock(mutex_);
    const auto found = table_.find(output.id);
    if (found == table_.end()) return;  // dropped while this was on its way
    place = found->second;
    if (output.summary) table_.erase(found);
  }
  Job& job = *place.job;
  std::lock_guard lock(job.mutex);
  if (job.over) return;
  ChoiceAnswer& choice = job.answer.choices[place.choice];
  if (output.prompt_logprobs) choice.prompt_logprobs = std::move(*output.prompt_logprobs);
  if (value(output.token) >= 0) add_token(job, place.choice, output);
  if (output.summary) {
    const RequestSummary& s = *output.summary;
    ended_.note(job.answer, place.choice, s);
    const bool cut_off =
        s.finish == FinishReason::abort && s.error.code == ErrorCode::shutting_down;
    if (s.finish == FinishReason::error || cut_off) {
      observe_end(s);
      return fail_job(job, s.error);
    }
    end_choice(job, place.choice, *output.summary);
  }
  send(job, place.choice);
}

void ReplyService::add_token(Job& job, size_t index, RequestOutput& output) {
  ChoiceAnswer& choice = job.answer.choices[index];
  const TimePoint t = now();
  if (job.answer.first_token == TimePoint{}) job.answer.first_token = t;
  if (options_.metrics != nullptr) {
    if (job.last_token[index] == TimePoint{})
      options_.metrics->observe_first_token(t - job.answer.received);
    else
      options_.metrics->observe_inter_token(t - job.last_token[index]);
  }
  job.last_token[index] = t;
  if (const auto& meter = job.answer.request.meter) meter->take_tokens(1);
  const bool whole =
      std::holds_alternative<std::string>(choice.matched_stop) || job.texts[index].calls_done();
  if (whole || job.prompt_of(index).max_tokens == 0) return;

  choice.ids.push_back(output.token);
  if (job.prompt_of(index).sampling.num_top_logprobs >= 0)
    choice.logprobs.push_back(output.logprobs ? std::move(*output.logprobs) : PositionLogprobs{});
  const bool is_stop_token = output.summary && output.summary->finish == FinishReason::stop &&
                             output.summary->matched_stop == output.token;
  if (is_stop_token && job.answer.request.stop_text == StopText::trim) return;
  if (job.texts[index].add(output.token, choice) && !output.summary)
    options_.generator->complete(job.ids[index]);
}

void ReplyService::end_choice(Job& job, size_t index, RequestSummary& summary) {
  ChoiceAnswer& choice = job.answer.choices[index];
  AnswerText& text = job.texts[index];
  text.finish(choice);
  for (const std::string& warning : text.warnings())
    log::warning("answer {}: {}", job.answer.id, warning);
  if (std::holds_alternative<std::string>(choice.matched_stop) || text.calls_done()) {
    choice.finish = FinishReason::stop;
  } else {
    choice.finish = summary.finish;
    if (summary.finish == FinishReason::stop && value(summary.matched_stop) >= 0)
      choice.matched_stop = summary.matched_stop;
    if (job.prompt_of(index).max_tokens == 0 && summary.finish == FinishReason::stop) {
      choice.finish = FinishReason::length;
      choice.matched_stop = std::monostate{};
    }
  }
  choice.ended = true;
  choice.cached_tokens = summary.cached_tokens;
  choice.num_retractions = summary.num_retractions;
  choice.rank = summary.rank;
  choice.times = summary.times;
  choice.routed = std::move(summary.routed);
  job.answer.last_ended = index;
  job.answer.ended = now();
  ++job.num_ended;
  observe_end(summary);
}

void ReplyService::send(Job& job, size_t index) {
  const AnswerForm& form = answer_form(job.answer.request.api);
  const bool all_ended = job.num_ended == job.answer.choices.size();
  ChoiceAnswer& choice = job.answer.choices[index];
  job.texts[index].count_shown(choice);
  if (job.stream && !send_blocks(job, form, choice)) return drop_job(job);
  if (!all_ended) return;
  job.over = true;
  form.ended(job.answer, nullptr);
  if (job.answer.story) {
    const bool left = job.exchange != nullptr && job.exchange->is_closed();
    job.answer.story->ended(job.answer, left ? kClientLeft : 200);
  }
  if (job.exchange == nullptr) return;
  if (!job.stream)
    job.exchange->respond(200, "application/json", form.whole(job.answer));
  else if (form.style() == StreamStyle::named)
    job.stream->finish();
  else
    job.stream->done();
}

// False when the client has left.
bool ReplyService::send_blocks(Job& job, const AnswerForm& form, ChoiceAnswer& choice) {
  const bool named = form.style() == StreamStyle::named;
  const auto write = [&](const std::string& block) {
    return named ? job.stream->events(block) : job.stream->data(block);
  };
  for (std::string block = form.next_block(job.answer, choice); !block.empty();
       block = form.next_block(job.answer, choice))
    if (!write(block)) return false;
  if (job.num_ended < job.answer.choices.size()) return true;
  const std::string block = form.closing_block(job.answer);
  return block.empty() || write(block);
}

void ReplyService::fail_job(Job& job, const Error& failure) {
  job.over = true;
  abort_all_of(job);
  forget(job);
  const AnswerForm& form = answer_form(job.answer.request.api);
  form.ended(job.answer, &failure);
  if (job.answer.story) job.answer.story->failed(failure);
  if (job.exchange == nullptr) return;
  if (!job.stream) {
    respond_error(*job.exchange, failure);
    return;
  }
  std::string last;
  if (job.stream->started())
    last = form.failure_block(job.answer, job.answer.choices.front(), failure);
  if (last.empty())
    job.stream->error(failure);
  else if (job.stream->events(last))
    job.stream->finish();
}

void ReplyService::drop_job(Job& job) {
  job.over = true;
  abort_all_of(job);
  forget(job);
  if (job.answer.story) job.answer.story->ended(job.answer, kClientLeft);
}

void ReplyService::observe_end(const RequestSummary& summary) {
  if (options_.metrics != nullptr) options_.metrics->observe_finished(summary);
}

}  // namespace hocket
