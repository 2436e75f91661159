#include "compute/comm/slot_memory.h"

#include <sys/mman.h>

#include "base/check.h"

namespace hocket {

namespace {

constexpr size_t kAlign = 64;

}  // namespace

void UnmapSlots::operator()(std::byte* memory) const {
  munmap(memory, num_bytes);
}

size_t SlotMemory::bytes_of(size_t slot_bytes) {
  return (slot_bytes + kAlign - 1) / kAlign * kAlign;
}

Result<SlotMemory> SlotMemory::create(size_t num_bytes) {
  SlotMemory slots;
  if (num_bytes == 0) return slots;
  // The pages are populated here, so that they are near this thread.
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(error(ErrorCode::out_of_memory,
                      "cannot allocate {:.2f} GB for the messages between ranks",
                      static_cast<double>(num_bytes) / 1e9)
                    .with_fix("smaller batches need less"));
  }
  slots.memory_ = {static_cast<std::byte*>(memory), UnmapSlots{num_bytes}};
  slots.rest_ = {slots.memory_.get(), num_bytes};
  return slots;
}

std::span<std::byte> SlotMemory::take(size_t slot_bytes) {
  const size_t taken = bytes_of(slot_bytes);
  HOCKET_CHECK(taken <= rest_.size());
  const auto slot = rest_.first(slot_bytes);
  rest_ = rest_.subspan(taken);
  return slot;
}

}  // namespace hocket
