// The weights of an ordinary decoder's layer under the names that Hugging Face's models share:
// model.layers.{i}.self_attn.q_proj.weight and so on. What a layer has, the config says.
#pragma once

#include "compute/models/layer.h"
#include "compute/weights/loader.h"

namespace hocket {

// As ModelFamily::load_layer.
Layer load_decoder_layer(const ModelConfig& model, int index, std::span<const int> experts,
                         WeightLoader& loader);

}  // namespace hocket
