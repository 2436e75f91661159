#include "engine/watch/step_place.h"

#include <fmt/format.h>

#include <array>

namespace hocket {

std::string_view verb_name(Verb verb) {
  constexpr std::array<std::string_view, 9> kNames = {
      "rest", "intake", "agree", "schedule", "prepare", "forward", "sample", "commit", "reply"};
  return kNames.at(static_cast<size_t>(verb));
}

std::string describe(const StepPlace& place) {
  std::string text(verb_name(place.verb));
  if (place.verb == Verb::forward && place.layer >= 0)
    text += fmt::format(", layer {}", place.layer);
  if (place.waits) text += ", waiting for other ranks";
  return text;
}

}  // namespace hocket
