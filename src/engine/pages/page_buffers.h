// Buffers of one size, through which pages or states pass between the pool and the threads that
// read and write stores. A thread that pops a buffer from `free` has it until it pushes it back, or
// until each user of share() has called release(). Owner: CacheTier. Thread: any.
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
  // From now on the buffer has num_users users; the last release() pushes it to `free`.
  void share(Id id, int num_users) { users_[static_cast<size_t>(id)] = num_users; }
  void release(Id id);
  bool is_half_free() const { return 2 * free.size() >= users_.size(); }
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
