// Where a rank is in its turn, for those who wonder why it does not come to an end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// What a step does, in this order (step.cc). agree: with the other ranks, on the step to come.
enum class Verb : uint8_t {
  rest,
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

struct StepPlace {
  Verb verb = Verb::rest;
  // Of several ranks: the layer whose rows were exchanged last, -1 before the first; and whether it
  // stands still because of the others.
  int layer = -1;
  bool waits = false;
};
// "forward, layer 17, waiting for other ranks".
std::string describe(const StepPlace& place);

}  // namespace hocket
