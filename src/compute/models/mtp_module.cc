#include "compute/models/mtp_module.h"

#include <fmt/core.h>

#include "compute/models/decoder_weights.h"

namespace hocket {
namespace {

// Returns the names of the layer of module `index`.
TensorNames layer_names(const ModelConfig& model, const ModelFamily& family, int index) {
  const MtpNames& mtp = *family.mtp;
  TensorNames names = family.names;
  names.mlp_norm = mtp.mlp_norm;
  names.first_layer = index;
  if (mtp.model.empty())
    names.first_layer += model.num_layers;
  else
    names.model = mtp.model;
  return names;
}

// Returns what is before the names of the tensors beside the layer.
std::string beside_layer(const MtpNames& mtp, const TensorNames& names) {
  return mtp.in_layer ? fmt::format("{}layers.{}.", names.model, names.first_layer)
                      : std::string(names.model);
}

}  // namespace

bool holds_mtp_module(const ModelConfig& model, const ModelFamily& family, int index,
                      const WeightSource& files) {
  const MtpNames& mtp = *family.mtp;
  const std::string beside = beside_layer(mtp, layer_names(model, family, index));
  return files.has(beside + std::string(mtp.embedding_norm));
}

MtpModule load_mtp_module(const ModelConfig& model, const ModelFamily& family, int index,
                          std::span<const int> experts, WeightLoader& loader) {
  HOCKET_CHECK(family.mtp != nullptr);
  const MtpNames& mtp = *family.mtp;
  const TensorNames names = layer_names(model, family, index);
  const std::string beside = beside_layer(mtp, names);
  const int hidden = model.hidden_size;
  const auto norm = [&](std::string_view name) {
    return loader.vector(beside + std::string(name), hidden, model.centred_norms ? 1.0f : 0.0f);
  };
  loader.keep_eight_bits();
  MtpModule module;
  module.join.embedding_norm = norm(mtp.embedding_norm);
  module.join.hidden_norm = norm(mtp.hidden_norm);
  module.join.projection = loader.matrix(beside + std::string(mtp.projection), hidden, 2 * hidden);
  module.layer = family.load_layer(model.mtp_module(), names, 0, experts, loader);
  module.final_norm = norm(mtp.final_norm);
  return module;
}

ExpertWeights load_mtp_expert(const ModelConfig& model, const ModelFamily& family, int index,
                              int expert, WeightLoader& loader) {
  HOCKET_CHECK(family.mtp != nullptr);
  loader.keep_eight_bits();
  return load_decoder_expert(model.mtp_module(), layer_names(model, family, index), 0, expert,
                             loader);
}

}  // namespace hocket
