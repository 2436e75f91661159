// A model family: how the weights of one architecture are named, and which kind each layer is. How
// its config reads: weights/hf_families.h.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/models/layer.h"
#include "compute/weights/loader.h"
#include "core/model_config.h"

namespace hocket {

struct ModelFamily {
  std::string_view architecture;  // as in config.json
  // Asks the loader for the weights of layer `index`, of its experts only for these, and names its
  // kind. Errors stay in the loader.
  Layer (*load_layer)(const ModelConfig& model, int index, std::span<const int> experts,
                      WeightLoader& loader);
};

// Those of a layer, where one rank holds all.   Thread: any.
std::vector<int> all_experts(const ModelConfig& model);

// Errors: unsupported_model.   Thread: any.
Result<const ModelFamily*> find_family(std::string_view architecture);

}  // namespace hocket
