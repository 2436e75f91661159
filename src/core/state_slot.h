// The slots in which the states of a sequence are computed: models with delta nets have a state at
// each border, a multiple of kDeltaBlock tokens (compute/kernels/delta_state.h).
#pragma once

namespace hocket {

// Tokens between two borders. Borders are at absolute positions.
inline constexpr int kDeltaBlock = 64;

// One of a list by rising `end`: the states at the borders behind the previous `end`, up to
// this one, are computed in state slot `slot`, each over the one before. The last one stays there.
struct StateSlot {
  int end = 0;
  int slot = -1;
};
// The most slots of one sequence in a step: its state so far, those that a prompt leaves behind,
// and its state afterwards.
inline constexpr int kMaxStateSlots = 16;

}  // namespace hocket
