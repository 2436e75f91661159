// The position of a rank in its step, to find out why the step does not end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// The actions of a step, in this order (step.cc). agree: with the other ranks, on the next step.
enum class StepAction : uint8_t {
  idle,
  intake,
  agree,
  schedule,
  prepare,
  forward,
  sample,
  commit,
  reply
};
std::string_view action_name(StepAction action);

struct StepPosition {
  StepAction action = StepAction::idle;
  // layer: the last one whose rows were exchanged, -1 before the first. waits: true if the rank
  // waits for others. Both are set with several ranks only.
  int layer = -1;
  bool waits = false;
};
// Returns "forward, layer 17, waiting for other ranks".
std::string describe(const StepPosition& position);

}  // namespace hocket
