// Buffers of one size between the pool and the threads that read and write pages or states.
// A buffer from `free` belongs to its taker until it is released.   Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/mailbox.h"
#include "compute/tensor/buffer.h"

namespace hocket {

class PageBuffers {
 public:
  using Id = int;

  // All are free. `memory` is cut into `count` of them.
  PageBuffers(Buffer memory, size_t count);
  // The buffer gets free once so many have released it.
  void share(Id id, int num_users) { users_[static_cast<size_t>(id)] = num_users; }
  void release(Id id);
  std::span<std::byte> of(Id id) const {
    return {memory_.data() + id * bytes_, static_cast<size_t>(bytes_)};
  }
  Mailbox<Id> free;

 private:
  const Buffer memory_;
  const int64_t bytes_;  // size of one
  std::vector<std::atomic<int>> users_;
};

}  // namespace hocket
