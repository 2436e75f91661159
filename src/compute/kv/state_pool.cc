#include "compute/kv/state_pool.h"

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

}  // namespace hocket
