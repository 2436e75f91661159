// A model family: the names of the weights of one architecture, and the kind of each layer. Its
// config is read by weights/hf_families.h.
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
  std::string_view architecture;  // its name in config.json
  // Asks the loader for the weights of layer `index` (only for these of its experts) and sets the
  // layer's kind. Errors stay in the loader.
  Layer (*load_layer)(const ModelConfig& model, int index, std::span<const int> experts,
                      WeightLoader& loader);
};

// Returns the ids of all experts of a layer, for a rank that holds all.   Thread: any.
std::vector<int> all_experts(const ModelConfig& model);

// Returns the family of an architecture.
// Errors: unsupported_model.   Thread: any.
Result<const ModelFamily*> find_family(std::string_view architecture);

}  // namespace hocket
