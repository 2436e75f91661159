// The weights of a model by their parts, as `hocket plan` prints them.   Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "core/server_settings.h"
#include "engine/plan/cost.h"

namespace hocket {

void print_weights(const ModelCost& cost);
// Prints changes as the lines `changed:` of the server.
void print_changes(std::span<const SettingChange> changes);
nlohmann::ordered_json parts_json(const ModelCost& cost);

}  // namespace hocket
