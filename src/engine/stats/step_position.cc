#include "engine/stats/step_position.h"

#include <fmt/format.h>

#include <array>

namespace hocket {

std::string_view action_name(StepAction action) {
  constexpr std::array<std::string_view, 9> kNames = {
      "idle", "intake", "agree", "schedule", "prepare", "forward", "sample", "commit", "reply"};
  return kNames.at(static_cast<size_t>(action));
}

std::string describe(const StepPosition& position) {
  std::string text(action_name(position.action));
  if (position.action == StepAction::forward && position.layer >= 0)
    text += fmt::format(", layer {}", position.layer);
  if (position.waits) text += ", waiting for other ranks";
  return text;
}

}  // namespace hocket
