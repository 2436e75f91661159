#include "server/usage/request_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

// Adds `bytes` unless the sum would pass `limit`; the sum may have passed it before.
bool add_within(std::atomic<int64_t>& sum, int64_t bytes, int64_t limit) {
  int64_t before = sum;
  do {
    if (bytes > std::max<int64_t>(0, limit - before)) return false;
  } while (!sum.compare_exchange_weak(before, before + bytes));
  return true;
}

Error all_hold_too_much(int64_t shared, int64_t total) {
  Error why =
      shared == total
          ? error(ErrorCode::out_of_memory,
                  "all requests together hold nearly all of the {} bytes that they may", total)
          : error(ErrorCode::out_of_memory,
                  "all requests together hold nearly {} of the {} bytes that they may, and "
                  "the rest is kept for smaller requests",
                  shared, total);
  return std::move(why).with_fix(
      "try again later, ask for less at once, or start the server with a larger "
      "--total-request-memory-mib");
}

void raise_to(std::atomic<int64_t>& most, int64_t bytes) {
  int64_t before = most;
  while (before < bytes && !most.compare_exchange_weak(before, bytes)) {
  }
}

}  // namespace

RequestMemory::RequestMemory(std::shared_ptr<MemoryBudget> budget, std::string owner,
                             std::shared_ptr<Sum> of_owner)
    : budget_(std::move(budget)), owner_(std::move(owner)), of_owner_(std::move(of_owner)) {}

RequestMemory::~RequestMemory() {
  give_back(held_bytes_);
}

Result<void> RequestMemory::take(int64_t bytes) {
  HOCKET_CHECK(bytes >= 0);
  const RequestMemoryLimits& limits = budget_->limits_;
  Error why;
  if (!add_within(held_bytes_, bytes, limits.request_bytes)) {
    why = error(ErrorCode::payload_too_large,
                "this request needs more memory than the {} bytes that one may hold",
                limits.request_bytes)
              .with_fix(
                  "ask for less at once, or start the server with a larger "
                  "--request-memory-mib");
  } else if (of_owner_ != nullptr && !add_within(*of_owner_, bytes, limits.owner_bytes)) {
    held_bytes_ -= bytes;
    why = error(ErrorCode::rate_limited,
                "the requests of {} hold nearly all of the {} bytes that they may", owner_,
                limits.owner_bytes)
              .with_fix(
                  "try again when some of them are answered, or start the server with a "
                  "larger --key-memory-mib");
  } else if (const int64_t shared = limits.total_limit_for(held_bytes_);
             !add_within(budget_->held_bytes_, bytes, shared)) {
    held_bytes_ -= bytes;
    if (of_owner_ != nullptr) *of_owner_ -= bytes;
    why = all_hold_too_much(shared, limits.total_bytes);
  } else {
    raise_to(budget_->peak_held_bytes_, budget_->held_bytes_);
    return {};
  }
  ++budget_->num_refused_;
  return fail(std::move(why));
}

void RequestMemory::give_back(int64_t bytes) {
  HOCKET_CHECK((bytes >= 0 && bytes <= held_bytes_));
  held_bytes_ -= bytes;
  if (of_owner_ != nullptr) *of_owner_ -= bytes;
  budget_->held_bytes_ -= bytes;
}

std::shared_ptr<MemoryBudget> MemoryBudget::create(RequestMemoryLimits limits) {
  return std::shared_ptr<MemoryBudget>(new MemoryBudget(limits));
}

std::shared_ptr<RequestMemory> MemoryBudget::open(std::string owner) {
  std::shared_ptr<RequestMemory::Sum> sum;
  if (!owner.empty()) {
    const MutexLock lock(mutex_);
    auto& known = owners_[owner];
    if (known == nullptr) known = std::make_shared<RequestMemory::Sum>(0);
    sum = known;
  }
  return std::shared_ptr<RequestMemory>(
      new RequestMemory(shared_from_this(), std::move(owner), std::move(sum)));
}

HeldBytes::HeldBytes(HeldBytes&& other) noexcept
    : request_(std::move(other.request_)), bytes_(std::exchange(other.bytes_, 0)) {}

HeldBytes& HeldBytes::operator=(HeldBytes&& other) noexcept {
  if (this == &other) return *this;
  release();
  request_ = std::move(other.request_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Result<void> HeldBytes::grow(int64_t bytes) {
  if (request_ == nullptr) return {};
  HOCKET_TRY_VOID(request_->take(bytes));
  bytes_ += bytes;
  return {};
}

Result<void> HeldBytes::resize(int64_t bytes) {
  if (bytes > bytes_) return grow(bytes - bytes_);
  if (request_ != nullptr) request_->give_back(bytes_ - bytes);
  bytes_ = request_ == nullptr ? 0 : bytes;
  return {};
}

void HeldBytes::release() {
  if (request_ != nullptr && bytes_ > 0) request_->give_back(bytes_);
  bytes_ = 0;
}

}  // namespace hocket
