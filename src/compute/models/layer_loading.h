// Parts of loading that all kinds of layers share. Private to the room.   Thread: any.
#pragma once

#include <span>
#include <string>

#include "compute/weights/loader.h"
#include "core/model_config.h"

namespace hocket {

inline Bias bias_if(bool present) {
  return present ? Bias::present : Bias::none;
}

// Loads a norm of the residual stream, or of heads.
inline std::span<const float> load_norm(const ModelConfig& model, const std::string& name, int n,
                                        WeightLoader& loader) {
  return loader.vector(name, n, model.centred_norms ? 1.0f : 0.0f);
}

}  // namespace hocket
