#include "cluster/store.h"

#include <algorithm>
#include <charconv>

namespace hocket {
namespace {

Error not_in_time(const std::string& key) {
  return error(ErrorCode::timed_out, "timed out waiting for the key '{}' in the ranks' store", key);
}

}  // namespace

void Store::answer(uint64_t requester, uint64_t id, std::shared_ptr<const std::string> value) {
  replies_.push_back({.requester = requester, .id = id, .value = std::move(value)});
}

void Store::refuse(uint64_t requester, uint64_t id, const Error& e) {
  replies_.push_back({.requester = requester,
                      .id = id,
                      .code = static_cast<uint16_t>(e.code),
                      .value = std::make_shared<const std::string>(cut_why(e.message))});
}

void Store::ask(uint64_t requester, StoreRequest request, TimePoint now) {
  const uint64_t id = request.id;
  auto found = entries_.find(request.key);
  if (found != entries_.end() && found->second.until <= now) {
    erase(request.key);
    found = entries_.end();
  }
  const bool timed = request.op == StoreOp::set || request.op == StoreOp::wait;
  if (timed && (request.number < 0 || request.number > kMaxWaitMs))
    return refuse(requester, id,
                  error(ErrorCode::bad_value, "a time of {} ms for '{}'; 0 to {} are taken",
                        request.number, request.key, kMaxWaitMs));
  switch (request.op) {
    case StoreOp::set: {
      const TimePoint until =
          request.number == 0 ? TimePoint::max() : now + std::chrono::milliseconds(request.number);
      return set(requester, std::move(request), until);
    }
    case StoreOp::get:
      if (found != entries_.end()) return answer(requester, id, found->second.value);
      return refuse(requester, id,
                    error(ErrorCode::not_found, "the store has no '{}'", request.key));
    case StoreOp::wait:
      if (found != entries_.end()) return answer(requester, id, found->second.value);
      return wait(requester, request, now);
    case StoreOp::add:
      return add(requester, request);
    case StoreOp::erase:
      erase(request.key);
      return answer(requester, id);
  }
}

void Store::set(uint64_t requester, StoreRequest request, TimePoint until) {
  if (!put(request.key, std::move(request.value), until))
    return refuse(
        requester, request.id,
        error(ErrorCode::queue_full, "the store has no room for '{}': {} entries, {} bytes",
              request.key, entries_.size(), num_bytes_));
  answer(requester, request.id);
  const auto value = entries_.at(request.key).value;
  std::erase_if(waits_, [&](const Wait& w) {
    if (w.key != request.key) return false;
    answer(w.requester, w.id, value);
    return true;
  });
}

void Store::add(uint64_t requester, const StoreRequest& request) {
  int64_t sum = 0;
  TimePoint until = TimePoint::max();
  if (const auto found = entries_.find(request.key); found != entries_.end()) {
    const std::string& text = *found->second.value;
    until = found->second.until;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (problem != std::errc() || end != text.data() + text.size())
      return refuse(requester, request.id,
                    error(ErrorCode::bad_value, "'{}' in the store is no number", request.key));
  }
  if (__builtin_add_overflow(sum, request.number, &sum))
    return refuse(requester, request.id,
                  error(ErrorCode::bad_value, "'{}' in the store would overflow", request.key));
  // The sum is set as any value is, so that waits for the key end; its own reply gets the number.
  const size_t first = replies_.size();
  set(requester, {.id = request.id, .key = request.key, .value = std::to_string(sum)}, until);
  if (replies_[first].code == 0) replies_[first].number = sum;
}

void Store::wait(uint64_t requester, const StoreRequest& request, TimePoint now) {
  if (request.number == 0) return refuse(requester, request.id, not_in_time(request.key));
  if (waits_.size() == kMaxWaits)
    return refuse(requester, request.id,
                  error(ErrorCode::queue_full,
                        "{} calls wait for entries of the ranks' store already", waits_.size()));
  waits_.push_back(
      {requester, request.id, request.key, now + std::chrono::milliseconds(request.number)});
}

void Store::expire(TimePoint now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->second.until <= now) erase(std::string(it->first));
    it = next;
  }
  std::erase_if(waits_, [&](const Wait& w) {
    if (w.until > now) return false;
    refuse(w.requester, w.id, not_in_time(w.key));
    return true;
  });
}

TimePoint Store::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const auto& [key, entry] : entries_) next = std::min(next, entry.until);
  for (const Wait& w : waits_) next = std::min(next, w.until);
  return next;
}

void Store::forget(uint64_t requester) {
  std::erase_if(waits_, [&](const Wait& w) { return w.requester == requester; });
}

bool Store::put(const std::string& key, std::string value, TimePoint until) {
  const auto found = entries_.find(key);
  const size_t old_bytes = found == entries_.end() ? 0 : key.size() + found->second.value->size();
  const size_t bytes = num_bytes_ - old_bytes + key.size() + value.size();
  if (bytes > kMaxBytes) return false;
  if (found == entries_.end() && entries_.size() == kMaxEntries) return false;
  num_bytes_ = bytes;
  entries_[key] = {std::make_shared<const std::string>(std::move(value)), until};
  return true;
}

void Store::erase(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  num_bytes_ -= key.size() + found->second.value->size();
  entries_.erase(found);
}

}  // namespace hocket
