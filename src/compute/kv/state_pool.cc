#include "compute/kv/state_pool.h"

#include <cstring>

namespace hocket {

int64_t StatePool::Sizes::bytes() const {
  return num_layers * (num_states * shape.state_bytes() + num_blocks * shape.block_bytes());
}

Result<StatePool> StatePool::create(const Sizes& sizes) {
  HOCKET_CHECK(sizes.num_layers > 0 && sizes.num_states > 0 && sizes.num_blocks > 0);
  HOCKET_TRY(Buffer memory, Buffer::allocate(sizes.bytes()));
  return StatePool(sizes, std::move(memory));
}

DeltaLayer StatePool::layer(int layer) const {
  HOCKET_CHECK(layer >= 0 && layer < sizes_.num_layers);
  const int64_t state_bytes = sizes_.num_states * sizes_.shape.state_bytes();
  const int64_t block_bytes = sizes_.num_blocks * sizes_.shape.block_bytes();
  std::byte* const states = memory_.data() + layer * state_bytes;
  std::byte* const blocks = memory_.data() + sizes_.num_layers * state_bytes + layer * block_bytes;
  return {.shape = sizes_.shape, .states = states, .blocks = blocks};
}

std::byte* StatePool::state(int layer, int slot) const {
  HOCKET_CHECK(slot >= 0 && slot < sizes_.num_states);
  return this->layer(layer).states + slot * sizes_.shape.state_bytes();
}

void StatePool::save_state(int from, std::span<std::byte> to) const {
  HOCKET_CHECK(std::ssize(to) == state_bytes());
  const auto bytes = static_cast<size_t>(sizes_.shape.state_bytes());
  for (int layer = 0; layer < sizes_.num_layers; ++layer, to = to.subspan(bytes))
    std::memcpy(to.data(), state(layer, from), bytes);
}

void StatePool::load_state(std::span<const std::byte> from, int to) {
  HOCKET_CHECK(std::ssize(from) == state_bytes());
  const auto bytes = static_cast<size_t>(sizes_.shape.state_bytes());
  for (int layer = 0; layer < sizes_.num_layers; ++layer, from = from.subspan(bytes))
    std::memcpy(state(layer, to), from.data(), bytes);
}

}  // namespace hocket
