// The memory of gated delta nets, for all layers that have one: state slots and block slots as
// kernels/delta_state.h describes them. policy/cache knows which tokens a state stands for; here a
// slot is only a number, and means the same slot in every layer.   Thread: engine.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "compute/kernels/delta_state.h"
#include "compute/tensor/buffer.h"

namespace hocket {

class StatePool {
 public:
  struct Sizes {
    DeltaShape shape;
    int num_layers = 0;
    int num_states = 0;  // state slots
    int num_blocks = 0;  // block slots: sequences that may be under way at the same time
    int64_t bytes() const;
  };
  // Reserves all of the memory at once; the system backs a slot with memory when it is first
  // written. Errors: out_of_memory.
  static Result<StatePool> create(const Sizes& sizes);

  // layer: among those that have a delta net.
  DeltaLayer layer(int layer) const;

  // Copy the state in a state slot out and in, layer by layer: state_bytes() bytes.
  int64_t state_bytes() const { return sizes_.num_layers * sizes_.shape.state_bytes(); }
  void save_state(int from, std::span<std::byte> to) const;
  void load_state(std::span<const std::byte> from, int to);

 private:
  std::byte* state(int layer, int slot) const;
  StatePool(const Sizes& sizes, Buffer memory) : sizes_(sizes), memory_(std::move(memory)) {}
  Sizes sizes_;
  Buffer memory_;
};

}  // namespace hocket
