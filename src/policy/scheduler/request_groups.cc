#include "policy/scheduler/request_groups.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

auto order_of(const Request& request) {
  return std::tuple(-int64_t{request.priority}, request.queue_order);
}

}  // namespace

void RequestGroups::push(Request& request, uint64_t key) {
  auto found = groups_.find(key);
  if (found == groups_.end()) {
    auto made = std::make_unique<RequestGroup>();
    made->key = key;
    found = groups_.emplace(key, std::move(made)).first;
  }
  RequestGroup& group = *found->second;
  if (!group.active()) group.served = std::max(group.served, lowest_served());
  const auto behind = std::upper_bound(
      group.waiting.begin(), group.waiting.end(), &request,
      [](const Request* a, const Request* b) { return order_of(*a) < order_of(*b); });
  group.waiting.insert(behind, &request);
  request.group = &group;
  ordered_ = false;
  if (groups_.size() > kMaxGroups) forget_idle();
}

void RequestGroups::remove(Request& request) {
  RequestGroup& group = *request.group;
  const auto found = std::find(group.waiting.begin(), group.waiting.end(), &request);
  HOCKET_CHECK(found != group.waiting.end());
  group.waiting.erase(found);
  changed(group);
}

void RequestGroups::skip(Request& request) {
  RequestGroup& group = *request.group;
  HOCKET_CHECK(!used_up(group));
  HOCKET_CHECK(first(group) == &request);
  group.num_skipped = num_skipped(group) + 1;
  group.skipped_in = pass_;
  changed(group);
}

void RequestGroups::admitted(Request& request, int64_t num_tokens) {
  ++request.group->num_running;
  request.group->served += kPromptTokenWeight * num_tokens;
  changed(*request.group);
}

void RequestGroups::left(Request& request) {
  --request.group->num_running;
  HOCKET_CHECK(request.group->num_running >= 0);
}

// If the group is on top, head() moves it to its position; for any other group the heap is rebuilt.
void RequestGroups::changed(const RequestGroup& group) {
  if (heap_.empty() || heap_.front() != &group) ordered_ = false;
}

// Only the top group may have changed since the heap was built; it is moved to its position first.
Request* RequestGroups::head() {
  const auto order = [this](const RequestGroup* a, const RequestGroup* b) { return later(a, b); };
  if (!ordered_) {
    heap_.clear();
    for (const auto& [key, group] : groups_)
      if (!used_up(*group)) heap_.push_back(group.get());
    std::make_heap(heap_.begin(), heap_.end(), order);
    ordered_ = true;
  } else if (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), order);
    if (used_up(*heap_.back()))
      heap_.pop_back();
    else
      std::push_heap(heap_.begin(), heap_.end(), order);
  }
  return heap_.empty() ? nullptr : first(*heap_.front());
}

bool RequestGroups::later(const RequestGroup* a, const RequestGroup* b) const {
  const auto turn = [this](const RequestGroup& group) {
    const Request& head = *first(group);
    const int64_t rank =
        criterion_ == Criterion::least_served ? group.served : -int64_t{group.num_running};
    return std::tuple(-int64_t{head.priority}, head.queue_order >= 0, rank, head.queue_order);
  };
  return turn(*a) > turn(*b);
}

// Counters only rise and no group starts below the lowest, so the last result holds while its group
// has not changed.
int64_t RequestGroups::lowest_served() {
  if (lowest_ != nullptr && lowest_->active() && lowest_->served == floor_) return floor_;
  int64_t lowest = std::numeric_limits<int64_t>::max();
  lowest_ = nullptr;
  for (const auto& [key, group] : groups_) {
    if (!group->active() || group->served >= lowest) continue;
    lowest = group->served;
    lowest_ = group.get();
  }
  if (lowest_ != nullptr) floor_ = std::max(floor_, lowest);
  return floor_;
}

// Forgets idle groups that newcomers would equal; if there are still too many, all idle ones.
void RequestGroups::forget_idle() {
  const int64_t lowest = lowest_served();
  std::erase_if(groups_, [&](const auto& entry) {
    return !entry.second->active() && entry.second->served <= lowest;
  });
  if (groups_.size() > kMaxGroups)
    std::erase_if(groups_, [](const auto& entry) { return !entry.second->active(); });
  ordered_ = false;
}

}  // namespace hocket
