// Memory for messages, given out slot by slot: aligned to 64 bytes, zero, its pages near the
// creating thread.
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
  // Returns the bytes that a slot of slot_bytes takes.
  static size_t bytes_of(size_t slot_bytes);
  // Allocates num_bytes.
  // Errors: out_of_memory.
  static Result<SlotMemory> create(size_t num_bytes);
  // Returns the next slot, of slot_bytes. Slots together must not exceed num_bytes; else it is a
  // bug.
  std::span<std::byte> take(size_t slot_bytes);

 private:
  std::unique_ptr<std::byte, UnmapSlots> memory_;
  std::span<std::byte> rest_;
};

}  // namespace hocket
