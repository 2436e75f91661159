#include "policy/scheduler/waiting_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"

namespace hocket {

Result<SchedulePolicy> parse_schedule_policy(std::string_view name) {
  if (name == "fcfs") return SchedulePolicy::fcfs;
  if (name == "lpm") return SchedulePolicy::lpm;
  return fail(error(ErrorCode::bad_value, "schedule policy '{}' is unknown", name)
                  .with_fix("fcfs (first come, first served) or lpm (longest prefix match)")
                  .with_param("schedule_policy"));
}

Result<void> WaitingQueue::check_room(int num_tokens) const {
  if (size() >= limits_.max_requests)
    return fail(
        error(ErrorCode::queue_full, "{} requests wait already, as many as are allowed", size())
            .with_fix("try again later, or raise --max-queued-requests"));
  if (limits_.max_tokens > 0 && num_tokens_ + num_tokens > limits_.max_tokens)
    return fail(error(ErrorCode::queue_full,
                      "{} tokens wait already; {} more exceed the limit of {}", num_tokens_,
                      num_tokens, limits_.max_tokens)
                    .with_fix("try again later, or raise --max-queued-tokens"));
  return {};
}

// cached_len is 0 everywhere unless lpm set it.
bool WaitingQueue::Entry::before(const Entry& other) const {
  if (order < 0 || other.order < 0) return order < other.order;
  return std::tuple(-request->priority, -cached_len, order) <
         std::tuple(-other.request->priority, -other.cached_len, other.order);
}

void WaitingQueue::push(std::unique_ptr<Request> request) {
  num_tokens_ += static_cast<int64_t>(request->tokens.size());
  Entry entry{std::move(request), num_arrived_++, 0};
  const auto place =
      by_arrival_ ? std::upper_bound(entries_.begin(), entries_.end(), entry,
                                     [](const Entry& a, const Entry& b) { return a.before(b); })
                  : entries_.end();
  entries_.insert(place, std::move(entry));
}

void WaitingQueue::push_retracted(std::unique_ptr<Request> request) {
  num_tokens_ += static_cast<int64_t>(request->tokens.size());
  entries_.push_front(Entry{std::move(request), -++num_retracted_, 0});
}

void WaitingQueue::sort(const RadixCache& cache) {
  if (policy_ != SchedulePolicy::lpm || empty()) return;
  if (size() > kMaxWaitingForLpm) {
    if (num_lpm_fallbacks_++ == 0)
      log::warning(
          "lpm_fallback waiting={} limit={} now=fcfs: prefixes are not compared while so many wait",
          size(), kMaxWaitingForLpm);
    sort_by_arrival();
    return;
  }
  for (Entry& entry : entries_)
    entry.cached_len =
        cache.match_len(entry.request->cache_namespace, entry.request->reusable_tokens());
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.before(b); });
  by_arrival_ = false;
}

void WaitingQueue::sort_by_arrival() {
  if (by_arrival_) return;
  for (Entry& entry : entries_) entry.cached_len = 0;
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.before(b); });
  by_arrival_ = true;
}

std::unique_ptr<Request> WaitingQueue::take(std::deque<Entry>::iterator entry) {
  std::unique_ptr<Request> request = std::move(entry->request);
  entries_.erase(entry);
  num_tokens_ -= static_cast<int64_t>(request->tokens.size());
  return request;
}

std::unique_ptr<Request> WaitingQueue::take_head() {
  return take(entries_.begin());
}

std::unique_ptr<Request> WaitingQueue::remove(RequestId id) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.request->id == id; });
  return entry == entries_.end() ? nullptr : take(entry);
}

}  // namespace hocket
