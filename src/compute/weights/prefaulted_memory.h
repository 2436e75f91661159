// Has the kernel clear new memory before the workers fill it. The kernel clears a huge page at
// the first write to it. Workers that pack neighbouring rows write to one page at once: each of
// them would clear a page, and all but one would be thrown away. So each page is touched by one
// worker, some pages ahead of the rows that are packed.   Thread: the one that loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/worker_pool.h"

namespace hocket {

class PrefaultedMemory {
 public:
  PrefaultedMemory() = default;  // no memory: nothing is touched
  explicit PrefaultedMemory(std::span<std::byte> memory) : memory_(memory) {}

  // Touches the pages up to `last`, and some more, unless they were touched. Numbers that are
  // written in them stay. No other thread may write meanwhile.
  void prefault(const std::byte* last, WorkerPool* workers);
  // Returns the bytes that were touched.
  int64_t touched() const { return touched_; }

 private:
  std::span<std::byte> memory_;
  int64_t touched_ = 0;
};

}  // namespace hocket
