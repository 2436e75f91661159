#include "engine/balance/expert_memory.h"

#include <algorithm>
#include <utility>

namespace hocket {

ExpertMemory::ExpertMemory(Buffer planned, int64_t expert_bytes) {
  for (int64_t at = 0; at < planned.bytes(); at += expert_bytes)
    free_.push_back({planned.data() + at, expert_bytes});
  buffers_.push_back(std::move(planned));
}

// Slots are as large as experts of their layer, so one that is free may be too small.
Result<ExpertMemory::Slot> ExpertMemory::take(int64_t bytes) {
  const auto fits = [&](const Slot& slot) { return slot.bytes >= bytes; };
  if (const auto found = std::ranges::find_if(free_, fits); found != free_.end()) {
    const Slot slot = *found;
    free_.erase(found);
    return slot;
  }
  HOCKET_TRY(Buffer more, Buffer::allocate(bytes));
  const Slot slot{more.data(), more.bytes()};
  buffers_.push_back(std::move(more));
  return slot;
}

bool ExpertMemory::owns(const std::byte* at) const {
  return std::ranges::any_of(buffers_, [&](const Buffer& buffer) {
    return at >= buffer.data() && at < buffer.data() + buffer.bytes();
  });
}

}  // namespace hocket
