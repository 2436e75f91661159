#include "policy/scheduler/request_lists.h"

#include <algorithm>
#include <utility>

namespace hocket {

RequestLists::RequestLists(const SchedulerOptions& options, KvMemory& memory)
    : waiting({.policy = options.policy,
               .max_requests = options.max_queued_requests,
               .max_tokens = options.max_queued_tokens,
               .prefix_cache = options.prefix_cache,
               .in_batch = options.in_batch,
               .max_overtaken = options.max_overtaken,
               .seed = options.seed}),
      running(options.max_running_requests, options.page_tokens),
      max_running_(options.max_running_requests),
      memory_(memory) {
  const auto most = static_cast<size_t>(options.max_running_requests) + 1;
  chunked.reserve(static_cast<size_t>(options.max_chunked_requests));
  leaving_.reserve(2 * most);
  finished_.reserve(2 * most);
}

bool RequestLists::idle() const {
  return num_active() == 0 && !has_leaving() && waiting.empty() && waiting.num_held() == 0;
}

Request* RequestLists::find_active(RequestId id) const {
  Request* found = nullptr;
  for_each_active([&](Request& request) {
    if (request.id == id) found = &request;
  });
  return found;
}

void RequestLists::add_active(std::unique_ptr<Request> request, bool samples) {
  if (samples)
    running.add(std::move(request));
  else
    chunked.push_back(std::move(request));
}

std::unique_ptr<Request> RequestLists::take_newest_chunked() {
  std::unique_ptr<Request> newest = std::move(chunked.back());
  chunked.pop_back();
  return newest;
}

// Neither list has all in order of admission, because shorter prompts pass those in chunks.
std::unique_ptr<Request> RequestLists::take_newest() {
  const auto order = [](const auto& request) { return request->admitted_as; };
  const auto requests = running.requests();
  const auto newest = std::ranges::max_element(requests, {}, order);
  const bool in_chunks =
      newest == requests.end() || (!chunked.empty() && order(chunked.back()) > order(*newest));
  return in_chunks ? take_newest_chunked() : running.take(**newest);
}

void RequestLists::retract(std::unique_ptr<Request> request, TimePoint now) {
  waiting.left(*request);
  memory_.free(*request);
  request->state = Request::State::waiting;
  ++request->num_retractions;
  waiting.push_retracted(std::move(request), now);
}

void RequestLists::remove_ended(TimePoint now) {
  std::erase_if(chunked, [&](std::unique_ptr<Request>& request) {
    if (request->finish == FinishReason::none) return false;
    finish(std::move(request), now);
    return true;
  });
  running.take_finished([&](std::unique_ptr<Request> request) { finish(std::move(request), now); });
  std::erase_if(leaving_, [&](std::unique_ptr<Request>& request) {
    if (request->num_batches > 0) return false;
    close(std::move(request), now);
    return true;
  });
}

void RequestLists::finish(std::unique_ptr<Request> request, TimePoint now) {
  memory_.keep_for_next_turn(*request, now);
  if (request->num_batches == 0) return close(std::move(request), now);
  request->times.finished = now;  // set already, since clients may read it before the rows are done
  leaving_.push_back(std::move(request));
}

void RequestLists::close(std::unique_ptr<Request> request, TimePoint now) {
  if (request->state != Request::State::waiting) waiting.left(*request);
  memory_.free(*request);
  request->group = nullptr;
  request->state = Request::State::finished;
  request->times.finished = now;
  finished_.push_back(std::move(request));
}

void RequestLists::reserve_close() {
  if (finished_.size() == finished_.capacity()) finished_.reserve(2 * finished_.size() + 1);
}

std::vector<std::unique_ptr<Request>> RequestLists::take_finished() {
  return std::exchange(finished_, {});
}

}  // namespace hocket
