// Loads the weights of an ordinary decoder's layer by the names that Hugging Face's models share:
// model.layers.{i}.self_attn.q_proj.weight and so on. The config says which of them a layer has.
#pragma once

#include "compute/models/family.h"

namespace hocket {

// Does what ModelFamily::load_layer says.
Layer load_decoder_layer(const ModelConfig& model, const TensorNames& names, int index,
                         std::span<const int> experts, WeightLoader& loader);

// Loads one of the routed experts of a layer, as load_decoder_layer() does.
ExpertWeights load_decoder_expert(const ModelConfig& model, const TensorNames& names, int index,
                                  int expert, WeightLoader& loader);

}  // namespace hocket
