// Memory for messages, handed out in order: aligned to 64 bytes, zero, its pages near the thread
// that made it.
// Thread: one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace hocket {

struct UnmapSlots {
  size_t num_bytes = 0;
  void operator()(std::byte* memory) const;
};

class SlotMemory {
 public:
  // What a slot of so many bytes takes.
  static size_t bytes_of(size_t slot_bytes);
  // Errors: out_of_memory.
  static Result<SlotMemory> create(size_t num_bytes);
  // The next slot, of `slot_bytes`. All together take no more than what was asked for: a bug else.
  std::span<std::byte> take(size_t slot_bytes);

 private:
  std::unique_ptr<std::byte, UnmapSlots> memory_;
  std::span<std::byte> rest_;
};

}  // namespace hocket
