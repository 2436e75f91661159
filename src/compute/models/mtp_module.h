// A module for multi-token prediction: one layer with its own keys and values, which predicts the
// token after next from a token and the hidden row of the position before it.
//
//   x = projection . [norm(embedding of token i + 1) ; norm(hidden row i)]
//   x = layer(x),   logits = head(final norm(x))
//
// Embedding and head are those of the model. model.h plays it like a model of one layer.
#pragma once

#include <span>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/models/family.h"

namespace hocket {

// Weights that join a token with a hidden row.
struct JoinWeights {
  std::span<const float> embedding_norm, hidden_norm;  // [hidden]
  PackedWeight projection;                             // k = 2 * hidden; n = 0: rows are not joined
};

struct MtpModule {
  JoinWeights join;
  Layer layer;
  std::span<const float> final_norm;  // [hidden]
};

// Returns true if the files hold module `index` of `model`. A config.json may name modules that the
// files of a copy lack.
bool holds_mtp_module(const ModelConfig& model, const ModelFamily& family, int index,
                      const WeightSource& files);

// Asks the loader for module `index` of `model`, whose family knows the names; only for these of
// its experts. From here on the loader quantizes to eight bits where it was to take fewer, because
// with fewer the drafts are seldom right. Errors stay in the loader.
MtpModule load_mtp_module(const ModelConfig& model, const ModelFamily& family, int index,
                          std::span<const int> experts, WeightLoader& loader);

// Loads one expert of module `index`, as load_mtp_module() does.
ExpertWeights load_mtp_expert(const ModelConfig& model, const ModelFamily& family, int index,
                              int expert, WeightLoader& loader);

}  // namespace hocket
