#include "policy/scheduler/waiting_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/client_name.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t, int64_t, int64_t> kWaitingTokenLimit{
    "{} tokens wait already; {} more exceed the limit of {}",
    "try again later, or raise --max-queued-tokens"};

bool before(const Request& a, const Request& b) {
  return std::tuple(-int64_t{a.priority}, a.queue_order) <
         std::tuple(-int64_t{b.priority}, b.queue_order);
}

}  // namespace

WaitingQueue::WaitingQueue(const Options& options) : options_(options), random_(options.seed) {
  if (options.policy == SchedulePolicy::fair)
    groups_ = std::make_unique<RequestGroups>(RequestGroups::Criterion::least_served);
  if (options.policy == SchedulePolicy::routing_key)
    groups_ = std::make_unique<RequestGroups>(RequestGroups::Criterion::most_running);
  by_prefix_.reserve(kMaxPrefixLookups);
}

Result<void> WaitingQueue::check_room(int num_tokens, const Request* leaving) const {
  const QueueUse requests = use_of_requests();
  if (leaving == nullptr)
    HOCKET_TRY_VOID(check_limit(kWaitingLimit, requests, requests.used, requests.max));
  if (options_.max_tokens <= 0) return {};
  const int64_t there = num_tokens_ - (full() ? std::ssize(leaving->tokens) : 0);
  return check_limit(kWaitingTokenLimit,
                     {.used = there, .more = num_tokens, .max = options_.max_tokens}, there,
                     num_tokens, options_.max_tokens);
}

// The smallest priority is last, its newest request at the very end.
const Request* WaitingQueue::newest_below_priority(int priority) const {
  if (empty()) return nullptr;
  const Request& last = *entries_.back().request;
  return last.priority < priority && last.queue_order >= 0 ? &last : nullptr;
}

void WaitingQueue::push(std::unique_ptr<Request> request, TimePoint queued, uint64_t rows_total) {
  if (request->queue_order == 0) {
    request->queue_order = ++num_arrived_;
    request->rows_at_arrival = rows_total;
    request->overdue_at = num_left_ + entries_.size() - num_stepped_aside_ +
                          static_cast<uint64_t>(std::max(options_.max_overtaken, 0));
  }
  insert(std::move(request), queued);
}

void WaitingQueue::push_retracted(std::unique_ptr<Request> request, TimePoint now) {
  request->queue_order = -++num_requeued_;
  insert(std::move(request), now);
}

void WaitingQueue::note_arrival(Request& request, TimePoint queued) {
  request.times.queued = queued;
  first_queued_ = std::min(first_queued_, queued);
  num_tokens_ += std::ssize(request.tokens);
}

void WaitingQueue::insert(std::unique_ptr<Request> owned, TimePoint queued) {
  Request& request = *owned;
  request.skipped_in = 0;
  const auto behind =
      std::upper_bound(entries_.begin(), entries_.end(), request,
                       [](const Request& a, const Entry& b) { return before(a, *b.request); });
  const auto entry = entries_.insert(behind, Entry{});
  try {  // a policy has groups or lengths, not both
    if (groups_)
      groups_->push(request, options_.policy == SchedulePolicy::fair
                                 ? claimed_client(request.client)
                                 : request.routing_key);
    if (options_.policy == SchedulePolicy::lof) by_length_.insert(by_length(request));
  } catch (...) {
    entries_.erase(entry);
    throw;
  }
  entry->request = std::move(owned);
  note_arrival(request, queued);
  if (drawn_ != nullptr && request.priority > drawn_->priority) drawn_ = nullptr;
  head_ = nullptr;
}

void WaitingQueue::hold(std::unique_ptr<Request> request, TimePoint now) {
  Request& held = *held_.emplace_back(std::move(request));
  note_arrival(held, now);
}

std::unique_ptr<Request> WaitingQueue::take_held(int index) {
  std::unique_ptr<Request> request = std::move(held_[static_cast<size_t>(index)]);
  held_.erase(held_.begin() + index);
  num_tokens_ -= std::ssize(request->tokens);
  return request;
}

WaitingQueue::ByLength WaitingQueue::by_length(Request& request) {
  return {-int64_t{request.priority}, -request.sampling.max_new_tokens, request.queue_order,
          &request};
}

WaitingQueue::Entries::iterator WaitingQueue::find(const Request& request) {
  const auto entry =
      std::lower_bound(entries_.begin(), entries_.end(), request,
                       [](const Entry& a, const Request& b) { return before(*a.request, b); });
  HOCKET_CHECK(entry != entries_.end() && entry->request.get() == &request);
  return entry;
}

std::unique_ptr<Request> WaitingQueue::take(Entries::iterator entry) {
  Request& request = *entry->request;
  if (request.skipped_in == 0)
    ++num_left_;
  else
    --num_stepped_aside_;
  if (groups_) groups_->remove(request);
  if (options_.policy == SchedulePolicy::lof) by_length_.erase(by_length(request));
  forget_choice(request);
  num_tokens_ -= std::ssize(request.tokens);
  std::unique_ptr<Request> owned = std::move(entry->request);
  entries_.erase(entry);
  return owned;
}

void WaitingQueue::forget_choice(const Request& request) {
  if (drawn_ == &request) drawn_ = nullptr;
  std::erase_if(by_prefix_, [&](const PrefixCandidate& c) { return c.request == &request; });
  head_ = nullptr;
}

void WaitingQueue::begin_pass(const RadixCache& cache, const Progress& progress) {
  cache_ = &cache;
  progress_ = progress;
  head_ = nullptr;
  ++pass_;
  num_skipped_ = 0;
  num_passed_ = 0;
  by_prefix_.clear();
  fallen_back_ = false;
  if (groups_) groups_->begin_pass();
  if (empty() || !is_cache_aware(options_.policy)) return;
  const bool too_many = size() > kMaxPrefixLookups && (options_.policy == SchedulePolicy::lpm ||
                                                       options_.policy == SchedulePolicy::hrrn);
  if (too_many || !options_.prefix_cache) fall_back();
}

void WaitingQueue::fall_back() {
  fallen_back_ = true;
  if (num_fallbacks_++ > 0) return;
  const auto name = schedule_policy_name(options_.policy);
  if (!options_.prefix_cache)
    log::warning("--schedule-policy {} falls back to fcfs, because there is no prefix cache", name);
  else
    log::warning(
        "--schedule-policy {} does as fcfs while {} requests wait: prefixes are compared up to {}",
        name, size(), kMaxPrefixLookups);
}

Request* WaitingQueue::head() {
  if (head_ == nullptr && num_skipped_ < kMaxSkipped) head_ = choose();
  return head_;
}

std::unique_ptr<Request> WaitingQueue::take_head() {
  return take(find(*head()));
}

void WaitingQueue::hold_head() {
  std::unique_ptr<Request>& held = held_.emplace_back();  // it may throw, so it comes first
  held = take_head();
  note_arrival(*held, held->times.queued);
}

void WaitingQueue::skip_head() {
  Request& request = *head();
  if (request.skipped_in == 0) {
    ++num_left_;
    ++num_stepped_aside_;
  }
  request.skipped_in = pass_;
  ++num_skipped_;
  if (groups_) groups_->skip(request);
  forget_choice(request);
}

Request* WaitingQueue::choose() {
  while (num_passed_ < entries_.size() && skipped(*entries_[num_passed_].request)) ++num_passed_;
  if (num_passed_ == entries_.size()) return nullptr;
  Request& first = *entries_[num_passed_].request;
  if (first.queue_order < 0 || overdue(first)) return &first;
  if (groups_) return groups_->head();
  if (options_.policy == SchedulePolicy::lof)
    return std::get<Request*>(*std::ranges::find_if(by_length_, [this](const ByLength& entry) {
      return !skipped(*std::get<Request*>(entry));
    }));
  if (options_.policy == SchedulePolicy::random) return draw();
  if (!is_cache_aware(options_.policy) || fallen_back_) return &first;
  look_up_prefixes();
  return by_prefix_.front().request;
}

Request* WaitingQueue::draw() {
  if (drawn_ != nullptr) return drawn_;
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(num_passed_);
  const int priority = begin->request->priority;
  const auto end = std::partition_point(begin, entries_.end(), [priority](const Entry& entry) {
    return entry.request->priority == priority;
  });
  const auto count = static_cast<uint64_t>(end - begin);
  do {
    drawn_ = begin[static_cast<std::ptrdiff_t>(random_() % count)].request.get();
  } while (skipped(*drawn_));  // ends, since the first is not skipped
  return drawn_;
}

// Looks up the first 128 requests that are not skipped; again when all of those are taken.
void WaitingQueue::look_up_prefixes() {
  if (!by_prefix_.empty()) return;
  for (Entry& entry : entries_) {
    if (by_prefix_.size() == kMaxPrefixLookups) break;
    Request& request = *entry.request;
    if (skipped(request)) continue;
    if (entry.cached_at != progress_.cache_generation) {
      entry.cached_len = cache_->match_len(request.cache_namespace, request.reusable_tokens());
      entry.cached_at = progress_.cache_generation;
    }
    by_prefix_.push_back({.request = &request, .cached_len = entry.cached_len});
  }
  mark_in_batch_sharers(by_prefix_, options_.in_batch);
  sort_by_prefix(options_.policy, by_prefix_, progress_.rows_total);
}

int WaitingQueue::num_short_rows(int less_than, int max_total, int page_tokens) {
  if (options_.policy != SchedulePolicy::shortest_prefill_first || fallen_back_ || empty())
    return 0;
  look_up_prefixes();
  int total = 0;
  for (const PrefixCandidate& candidate : by_prefix_) {
    const int rows = pages_for(candidate.uncached_len(), page_tokens) * page_tokens;
    if (candidate.uncached_len() >= less_than || total + rows > max_total) break;
    total += rows;
  }
  return total;
}

int64_t WaitingQueue::num_uncached_rows(const RadixCache& cache, int64_t most) const {
  int64_t rows = 0;
  int num_looked_up = 0;
  for (const Entry& entry : entries_) {
    if (rows >= most) break;
    const Request& request = *entry.request;
    rows += std::ssize(request.tokens);
    if (num_looked_up++ < kMaxForecastPrompts)
      rows -= cache.match_len(request.cache_namespace, request.reusable_tokens());
  }
  return std::clamp<int64_t>(rows, 0, std::max<int64_t>(most, 0));
}

std::unique_ptr<Request> WaitingQueue::remove(RequestId id) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.request->id == id; });
  if (entry != entries_.end()) return take(entry);
  const auto held = std::ranges::find(held_, id, [](const auto& request) { return request->id; });
  return held == held_.end() ? nullptr : take_held(static_cast<int>(held - held_.begin()));
}

std::unique_ptr<Request> WaitingQueue::take_queued_before(TimePoint limit) {
  if (first_queued_ >= limit) return nullptr;
  TimePoint first = TimePoint::max();
  for (int i = 0; i < num_held(); ++i) {
    const TimePoint queued = held_[static_cast<size_t>(i)]->times.queued;
    if (queued < limit) return take_held(i);
    first = std::min(first, queued);
  }
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->request->times.queued < limit) return take(entry);
    first = std::min(first, entry->request->times.queued);
  }
  first_queued_ = first;
  return nullptr;
}

}  // namespace hocket
