#include "engine/balance/expert_memory.h"

#include <algorithm>
#include <utility>

namespace hocket {

ExpertMemory::ExpertMemory(Buffer planned, const MovingMemory& plan) {
  std::byte* at = planned.data();
  for (const auto& [num, bytes] : {plan.of_layers, plan.of_modules})
    for (int64_t i = 0; i < num; ++i, at += bytes) give_back({at, bytes});
  buffers_.push_back(std::move(planned));
}

void ExpertMemory::give_back(Slot slot) {
  slot.bytes = bytes_.try_emplace(slot.data, slot.bytes).first->second;
  free_.push_back(slot);
}

// Experts of some layers are larger than those of others, so a free slot may be too small.
Result<ExpertMemory::Slot> ExpertMemory::take(int64_t bytes) {
  auto best = free_.end();
  for (auto slot = free_.begin(); slot != free_.end(); ++slot)
    if (slot->bytes >= bytes && (best == free_.end() || slot->bytes < best->bytes)) best = slot;
  if (best != free_.end()) {
    const Slot slot = *best;
    free_.erase(best);
    return slot;
  }
  HOCKET_TRY(Buffer more, Buffer::allocate(bytes));
  const Slot slot{more.data(), more.bytes()};
  bytes_[slot.data] = slot.bytes;
  buffers_.push_back(std::move(more));
  return slot;
}

bool ExpertMemory::owns(const std::byte* at) const {
  return std::ranges::any_of(buffers_, [&](const Buffer& buffer) {
    return at >= buffer.data() && at < buffer.data() + buffer.bytes();
  });
}

}  // namespace hocket
