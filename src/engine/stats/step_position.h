// The position of a rank in its step, to find out why the step does not end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// The verbs of a step, in this order (step.cc). agree: with the other ranks, on the next step.
enum class Verb : uint8_t {
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
std::string_view verb_name(Verb verb);

struct StepPosition {
  Verb verb = Verb::idle;
  // layer: the last one whose rows were exchanged, -1 before the first. waits: true if the rank
  // waits for others. Both are set with several ranks only.
  int layer = -1;
  bool waits = false;
};
// Returns "forward, layer 17, waiting for other ranks".
std::string describe(const StepPosition& position);

}  // namespace hocket
