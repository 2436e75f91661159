// Counts the memory that requests hold, from the first byte of a request to the last byte of its
// answer: bodies, parsed copies, prompts, log-probabilities, events that wait for their client.
//
//   HeldBytes -> RequestMemory (one request) -> its owner's sum -> MemoryBudget (the server)
//
// Each arrow adds the bytes to the next count: one part of a request, one request, all requests of
// an owner (a client with its own key), all requests of the server. Bytes are counted before they
// are allocated, so no limit is ever exceeded. A connection answers one request at a time, so the
// limit of a request is also the limit of its connection. Thread: any, for all of this file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "base/result.h"

namespace hocket {

struct RequestMemoryLimits {
  int64_t request_bytes = int64_t{256} << 20;
  int64_t owner_bytes = int64_t{512} << 20;  // for all requests of one owner
  int64_t total_bytes = int64_t{1} << 30;

  // Returns the limit on the bytes of all requests together, for a request that would then hold
  // `request` bytes: the larger the request, the lower the limit. So large requests leave room for
  // middle ones, and both leave room for small ones. 4,096 connections of small_bytes() each fit in
  // the last quarter, which is for small requests only.
  int64_t total_limit_for(int64_t request) const {
    if (request <= small_bytes()) return total_bytes;
    return request <= middle_bytes() ? total_bytes / 4 * 3 : total_bytes / 8 * 5;
  }
  int64_t small_bytes() const { return total_bytes / kSmallPart; }
  int64_t middle_bytes() const { return total_bytes / kMiddlePart; }
  static constexpr int64_t kSmallPart = 16'384, kMiddlePart = 1024;  // 64 KiB, 1 MiB of 1 GiB
};

class MemoryBudget;

// The bytes that one request holds. The destructor releases those that are still held.
class RequestMemory {
 public:
  ~RequestMemory();
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  // Adds `bytes`. On an error nothing is added. Errors: payload_too_large for this request,
  // rate_limited for its owner, out_of_memory for all requests together
  // (RequestMemoryLimits::total_limit_for). Each names the limit and its flag.
  Result<void> take(int64_t bytes);
  // Precondition: at least `bytes` are held.
  void give_back(int64_t bytes);
  int64_t held_bytes() const { return held_bytes_; }

 private:
  friend class MemoryBudget;
  using Sum = std::atomic<int64_t>;
  RequestMemory(std::shared_ptr<MemoryBudget> budget, std::string owner,
                std::shared_ptr<Sum> of_owner);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::string owner_;
  const std::shared_ptr<Sum> of_owner_;  // null: the request has no owner
  std::atomic<int64_t> held_bytes_{0};
};

// The budget of all requests. There is one object per server.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  static std::shared_ptr<MemoryBudget> create(RequestMemoryLimits limits);

  // Begins to count the bytes of a request that was let in. Empty: it has no owner.
  std::shared_ptr<RequestMemory> open(std::string owner);

  const RequestMemoryLimits& limits() const { return limits_; }
  int64_t held_bytes() const { return held_bytes_; }
  int64_t peak_held_bytes() const { return peak_held_bytes_; }  // the peak since the start
  uint64_t num_refused() const { return num_refused_; }

 private:
  friend class RequestMemory;
  explicit MemoryBudget(RequestMemoryLimits limits) : limits_(limits) {}

  const RequestMemoryLimits limits_;
  std::atomic<int64_t> held_bytes_{0}, peak_held_bytes_{0};
  std::atomic<uint64_t> num_refused_{0};
  Mutex mutex_;
  // Sums by the owner's name. None is removed, so there is one for each name that a key file had.
  std::unordered_map<std::string, std::shared_ptr<RequestMemory::Sum>> owners_
      HOCKET_GUARDED_BY(mutex_);
};

// The bytes of one part of a request; the destructor gives them back. Without a request, every call
// succeeds and nothing is counted.
// Thread: one at a time.
class HeldBytes {
 public:
  HeldBytes() = default;
  explicit HeldBytes(std::shared_ptr<RequestMemory> request) : request_(std::move(request)) {}
  ~HeldBytes() { release(); }
  HeldBytes(HeldBytes&& other) noexcept;
  HeldBytes& operator=(HeldBytes&& other) noexcept;

  // Errors: those of RequestMemory::take; the bytes held before stay held.
  Result<void> grow(int64_t bytes);
  // Sets the bytes held to `bytes`, more or fewer than before. Errors: as grow().
  Result<void> resize(int64_t bytes);
  void release();
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<RequestMemory> request_;
  int64_t bytes_ = 0;
};

}  // namespace hocket
