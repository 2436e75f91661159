// Buffers of one size, through which pages or states pass between the pool and the threads that
// read and write stores. A thread that pops a buffer from `free` has it until it pushes it back, or
// until each user of share() has called release(). Owner: PageReader or PageWriter. Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/mailbox.h"
#include "compute/tensor/buffer.h"
#include "engine/pages/page_source.h"
#include "engine/plan/tier_buffers.h"

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
  size_t count() const { return users_.size(); }
  Mailbox<Id> free;

 private:
  const Buffer memory_;
  const int64_t bytes_;  // size of one
  std::vector<std::atomic<int>> users_;
};

// Those of one direction.
struct TransferBuffers {
  struct Memory {
    Buffer pages, states;
    size_t num_pages = 0, num_states = 0;
  };
  // Those of TierBuffers::num_senders are for pages on their way in. Errors: out_of_memory.
  static Result<Memory> allocate(const TierBuffers& sizes);
  explicit TransferBuffers(Memory memory);

  PageBuffers pages, states;
  PageBuffers& of(PageKind kind) { return kind == PageKind::state ? states : pages; }
  size_t count() const { return pages.count() + states.count(); }
};

}  // namespace hocket
