#include "compute/models/decoder_weights.h"

#include <fmt/core.h>

#include "compute/models/decoder_kinds.h"
#include "compute/models/layer_loading.h"
#include "compute/models/mixers.h"

namespace hocket {
namespace {

// The arguments that all parts of a layer are loaded with.
struct Family {
  const ModelConfig& model;
  const TensorNames& names;
  WeightLoader& loader;
};

// `names` are those of the experts; a dense MLP and shared experts have the usual ones, {}.
ExpertWeights load_swiglu(const ModelConfig& model, const TensorNames& names,
                          const std::string& prefix, int intermediate, WeightLoader& loader) {
  const auto weight = [&](std::string_view part) {
    return fmt::format("{}{}.weight", prefix, part);
  };
  return loader.swiglu({weight(names.gate), weight(names.up), weight(names.down)},
                       model.hidden_size, intermediate, bias_if(model.mlp_bias));
}

std::string layer_prefix(const TensorNames& names, int index) {
  return fmt::format("{}layers.{}.", names.model, names.first_layer + index);
}

// `mlp`: what is before the names of the gate and the experts.
ExpertWeights load_expert(const Family& family, const std::string& mlp, int expert) {
  const auto& [model, names, loader] = family;
  return load_swiglu(model, names, fmt::format("{}experts.{}.", mlp, expert),
                     model.moe.intermediate_size, loader);
}

void load_moe(const Family& family, const std::string& layer, std::span<const int> experts,
              LayerWeights& out) {
  const auto& [model, names, loader] = family;
  const std::string mlp = fmt::format("{}{}", layer, names.moe);
  const MoeConfig& moe = model.moe;
  out.gate.gate = loader.plain_matrix(fmt::format("{}{}", mlp, names.router), moe.num_experts,
                                      model.hidden_size, bias_if(moe.gate_bias));
  if (moe.correction_bias)
    out.gate.bias = loader.vector(fmt::format("{}{}", mlp, names.correction_bias), moe.num_experts);
  if (moe.expert_scales)
    out.gate.scales = loader.vector(mlp + "router.per_expert_scale", moe.num_experts);
  for (const int e : experts) out.experts.push_back(load_expert(family, mlp, e));
  if (moe.shared_intermediate_size > 0)
    out.shared = load_swiglu(model, {}, fmt::format("{}{}", layer, names.shared),
                             moe.shared_intermediate_size, loader);
  if (moe.shared_gate)
    out.shared_gate = loader.plain_matrix(mlp + "shared_expert_gate.weight", 1, model.hidden_size);
}

// Gemma's names for the norms around routed and shared experts.
void load_result_norms(const ModelConfig& model, const std::string& layer, WeightLoader& loader,
                       LayerWeights& out) {
  const auto norm = [&](std::string_view name) {
    return loader.vector(fmt::format("{}{}.weight", layer, name), model.hidden_size);
  };
  out.gate.norm = norm("pre_feedforward_layernorm_2");
  out.gate.shared_norm = norm("pre_feedforward_layernorm");
  out.gate.gate_norm = loader.vector(layer + "router.scale", model.hidden_size);
  out.result_norms = {.shared = norm("post_feedforward_layernorm_1"),
                      .experts = norm("post_feedforward_layernorm_2"),
                      .both = norm("post_feedforward_layernorm"),
                      .scale = loader.vector(layer + "layer_scalar", 1)};
}

}  // namespace

Layer load_decoder_layer(const ModelConfig& model, const TensorNames& names, int index,
                         std::span<const int> experts, WeightLoader& loader) {
  const std::string prefix = layer_prefix(names, index);
  Layer layer;
  const Mixer& mixer = mixer_of(model, index);
  mixer.load({model, names, index, prefix, loader}, layer.weights);

  std::span<const float> post_norm;
  if (model.result_norms) {
    load_result_norms(model, prefix, loader, layer.weights);
  } else {
    post_norm = load_norm(model, prefix + std::string(names.mlp_norm), model.hidden_size, loader);
  }
  FeedForward feed_forward = FeedForward::dense;
  if (!model.layer_is_moe[index]) {
    layer.weights.mlp = {.norm = post_norm,
                         .mlp = load_swiglu(model, {}, fmt::format("{}{}", prefix, names.dense),
                                            model.intermediate_size, loader),
                         .intermediate = model.intermediate_size};
  } else {
    feed_forward = model.moe.shared_intermediate_size > 0 ? FeedForward::experts_and_shared
                                                          : FeedForward::experts;
    if (!model.result_norms) layer.weights.gate.norm = post_norm;
    load_moe({model, names, loader}, prefix, experts, layer.weights);
  }
  layer.kind = &decoder_kind(mixer, feed_forward);
  return layer;
}

ExpertWeights load_decoder_expert(const ModelConfig& model, const TensorNames& names, int index,
                                  int expert, WeightLoader& loader) {
  return load_expert({model, names, loader},
                     fmt::format("{}{}", layer_prefix(names, index), names.moe), expert);
}

}  // namespace hocket
