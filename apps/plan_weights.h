// The weights of a model by their parts, as `hocket plan` prints them.   Thread: any.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/plan/cost.h"

namespace hocket {

void print_weights(const ModelCost& cost);
nlohmann::ordered_json parts_json(const ModelCost& cost);

}  // namespace hocket
