#include "cluster/control_role.h"

#include <algorithm>
#include <utility>

namespace hocket {

void Shared::set(const ClusterView& view) {
  view_ = view;
  if (!is_in() || view_.epoch != entered_) {
    entered_ = 0;
    abort.store(1, std::memory_order_release);
  }
  num_changes.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_all();
}

void Shared::publish(const ClusterView& view) {
  MutexLock lock(mutex_);
  set(view);
}

void Shared::publish_over(const ClusterView& view) {
  MutexLock lock(mutex_);
  over_ = std::max(over_, view.epoch);
  set(view);
}

void Shared::publish_status(std::vector<RankStatus> status) {
  MutexLock lock(mutex_);
  status_ = std::move(status);
}

void Shared::publish_local_host(std::string host) {
  MutexLock lock(mutex_);
  local_host_ = std::move(host);
}

void Shared::give_up(const Error& why) {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = why;
  entered_ = 0;
  abort.store(1, std::memory_order_release);
  num_changes.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_all();
}

ClusterView Shared::view() const {
  MutexLock lock(mutex_);
  return view_;
}

uint32_t Shared::last_epoch() const {
  MutexLock lock(mutex_);
  return std::max(view_.epoch, over_);
}

std::optional<Error> Shared::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::vector<RankStatus> Shared::status() const {
  MutexLock lock(mutex_);
  return status_;
}

std::string Shared::local_host() const {
  MutexLock lock(mutex_);
  return local_host_;
}

Result<void> Shared::enter(uint32_t epoch) {
  MutexLock lock(mutex_);
  if (failure_) return fail(*failure_);
  if (!view_.serves()) return fail(ErrorCode::lost_rank, "{}", missing(view_));
  if (!view_.present().has(rank_))
    return fail(ErrorCode::lost_rank, "this rank is not in epoch {}", view_.epoch);
  if (view_.epoch != epoch || epoch <= over_)
    return fail(ErrorCode::lost_rank, "epoch {} is over: {}", epoch,
                view_.why.empty() ? "this rank gave it up" : view_.why);
  entered_ = epoch;
  abort.store(0, std::memory_order_release);
  return {};
}

uint32_t Shared::leave_epoch() {
  MutexLock lock(mutex_);
  abort.store(1, std::memory_order_release);
  over_ = std::max(over_, entered_);
  return std::exchange(entered_, 0);
}

void Shared::leave_epoch(uint32_t epoch) {
  MutexLock lock(mutex_);
  over_ = std::max(over_, epoch);
  if (entered_ > over_) return;
  entered_ = 0;
  abort.store(1, std::memory_order_release);
}

Result<ClusterView> Shared::wait_epoch(Duration max_wait) {
  MutexLock lock(mutex_);
  const auto ready = [&]() HOCKET_REQUIRES(mutex_) { return failure_ || is_in(); };
  const bool in_time = changed_.wait_for(lock, max_wait, ready);
  if (failure_) return fail(*failure_);
  if (in_time) return view_;
  return fail(error(ErrorCode::timed_out, "not all ranks came within {:.0f} s: {}",
                    to_seconds(max_wait), missing(view_))
                  .with_fix("start the missing ranks; their logs say why they could not join"));
}

Result<int> Shared::wait_replicas(Duration max_wait) {
  MutexLock lock(mutex_);
  const auto ready = [&]() HOCKET_REQUIRES(mutex_) { return failure_ || view_.replicas >= 0; };
  const bool in_time = changed_.wait_for(lock, max_wait, ready);
  if (failure_) return fail(*failure_);
  if (in_time) return view_.replicas;
  return fail(ErrorCode::timed_out,
              "not all ranks have said for how many experts they have memory");
}

Result<void> Shared::wait_view(Duration max_wait) {
  MutexLock lock(mutex_);
  const auto ready = [&]() HOCKET_REQUIRES(mutex_) { return failure_ || !view_.members.empty(); };
  const bool in_time = changed_.wait_for(lock, max_wait, ready);
  if (failure_) return fail(*failure_);
  if (!in_time) return fail(ErrorCode::timed_out, "no rank that coordinates answered in time");
  return {};
}

std::optional<StoreRequest> StoreCalls::start(StoreCall call) {
  if (open_.size() == kMax) {
    call.done.set_value(
        fail(ErrorCode::queue_full, "{} calls of the store are open already", open_.size()));
    return std::nullopt;
  }
  call.request.id = ++last_id_;
  open_.emplace(last_id_, std::move(call.done));
  return std::move(call.request);
}

void StoreCalls::finish(const StoreReply& reply) {
  const auto found = open_.find(reply.id);
  if (found == open_.end()) return;  // it was given up
  if (reply.code == 0)
    found->second.set_value(reply);
  else
    found->second.set_value(fail(static_cast<ErrorCode>(reply.code), "{}", reply.value));
  open_.erase(found);
}

void StoreCalls::fail_all(const Error& why) {
  for (auto& [id, done] : open_) done.set_value(fail(why));
  open_.clear();
}

}  // namespace hocket
