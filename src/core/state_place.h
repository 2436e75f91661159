// The slots in which the states of a sequence are kept: models with delta nets have one at each
// border, a multiple of kDeltaBlock tokens (compute/kernels/delta_state.h).
#pragma once

namespace hocket {

// Tokens between two borders. Borders are at absolute positions.
inline constexpr int kDeltaBlock = 64;

// Says that the states at borders up to `end` are in state slot `slot`.
struct StatePlace {
  int end = 0;
  int slot = -1;
};
// Most places of one sequence in a step: its state so far, those that a prompt leaves behind, and
// its state afterwards.
inline constexpr int kMaxStatePlaces = 16;

}  // namespace hocket
