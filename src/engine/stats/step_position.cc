#include "engine/stats/step_position.h"

#include <fmt/format.h>

#include <array>

namespace hocket {

std::string_view verb_name(Verb verb) {
  constexpr std::array<std::string_view, 9> kNames = {
      "rest", "intake", "agree", "schedule", "prepare", "forward", "sample", "commit", "reply"};
  return kNames.at(static_cast<size_t>(verb));
}

std::string describe(const StepPosition& position) {
  std::string text(verb_name(position.verb));
  if (position.verb == Verb::forward && position.layer >= 0)
    text += fmt::format(", layer {}", position.layer);
  if (position.waits) text += ", waiting for other ranks";
  return text;
}

}  // namespace hocket
