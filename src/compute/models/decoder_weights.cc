#include "compute/models/decoder_weights.h"

#include <fmt/core.h>

#include <array>
#include <vector>

#include "compute/models/decoder_kinds.h"

namespace hocket {
namespace {

// The arguments that all parts of a layer are loaded with.
struct Family {
  const ModelConfig& model;
  const TensorNames& names;
  WeightLoader& loader;
};

Bias bias_if(bool present) {
  return present ? Bias::present : Bias::none;
}

// Loads a norm of the residual stream, or of heads.
std::span<const float> load_norm(const ModelConfig& model, const std::string& name, int n,
                                 WeightLoader& loader) {
  return loader.vector(name, n, model.centred_norms ? 1.0f : 0.0f);
}

GqaWeights load_gqa(const Family& family, const AttentionConfig& heads, const std::string& prefix) {
  const auto& [model, names, loader] = family;
  const std::string self = prefix + "self_attn.";
  const int q = heads.num_heads * heads.key_dim, k = heads.num_kv_heads * heads.key_dim;
  const std::array<WeightLoader::Part, 3> qkv = {
      {{self + "q_proj.weight", heads.num_heads * model.query_columns(heads.key_dim)},
       {self + "k_proj.weight", k},
       {self + (heads.values_are_keys ? "k_proj.weight" : "v_proj.weight"),
        heads.num_kv_heads * heads.value_dim}}};
  GqaWeights out;
  out.input_norm = load_norm(model, prefix + "input_layernorm.weight", model.hidden_size, loader);
  out.qkv = loader.stacked_by_format(qkv, model.hidden_size, bias_if(model.qkv_bias));
  if (model.qk_norm) {
    const bool over_heads = model.qk_norm_over_heads;
    out.q_norm = load_norm(model, self + "q_norm.weight", over_heads ? q : heads.key_dim, loader);
    out.k_norm = load_norm(model, self + "k_norm.weight", over_heads ? k : heads.key_dim, loader);
  }
  if (model.head_gates)
    out.head_gates =
        loader.plain_matrix(self + "g_proj.weight", heads.num_heads, model.hidden_size);
  if (heads.sinks) out.sinks = loader.vector(self + std::string(names.sinks), heads.num_heads);
  out.output = loader.matrix(self + "o_proj.weight", model.hidden_size,
                             heads.num_heads * heads.value_dim, bias_if(model.output_bias));
  if (model.result_norms)
    out.result_norm =
        load_norm(model, prefix + "post_attention_layernorm.weight", model.hidden_size, loader);
  return out;
}

MlaWeights load_mla(const ModelConfig& model, const std::string& prefix, WeightLoader& loader) {
  const std::string self = prefix + "self_attn.";
  const MlaConfig& mla = model.mla;
  const int heads = model.num_heads * model.head_dim;
  const std::array<WeightLoader::Part, 2> down = {
      {mla.q_rank > 0 ? WeightLoader::Part{self + "q_a_proj.weight", mla.q_rank}
                      : WeightLoader::Part{self + "q_proj.weight", heads},
       {self + "kv_a_proj_with_mqa.weight", mla.kv_rank + mla.rope_dim}}};
  MlaWeights out;
  out.input_norm = loader.vector(prefix + "input_layernorm.weight", model.hidden_size);
  out.down = loader.stacked(down, model.hidden_size);
  if (mla.q_rank > 0) {
    out.q_norm = loader.vector(self + "q_a_layernorm.weight", mla.q_rank);
    out.q_up = loader.matrix(self + "q_b_proj.weight", heads, mla.q_rank);
  }
  out.kv_norm = loader.vector(self + "kv_a_layernorm.weight", mla.kv_rank);
  out.heads = loader.latent_heads(self + "kv_b_proj.weight", model.num_heads, mla.nope_dim,
                                  mla.value_dim, mla.kv_rank);
  out.output =
      loader.matrix(self + "o_proj.weight", model.hidden_size, model.num_heads * mla.value_dim);
  return out;
}

// Kimi's names for a delta net whose decays are those of channels.
GatedDeltaWeights load_channel_delta(const ModelConfig& model, const std::string& prefix,
                                     WeightLoader& loader) {
  using Parts = std::vector<WeightLoader::Part>;
  const std::string self = prefix + "self_attn.";
  const DeltaNetConfig& net = model.delta_net;
  const int keys = net.key_columns(), values = net.value_columns(), heads = net.num_value_heads;
  GatedDeltaWeights out;
  out.input_norm = load_norm(model, prefix + "input_layernorm.weight", model.hidden_size, loader);
  out.in = loader.stacked(Parts{{self + "q_proj.weight", keys},
                                {self + "k_proj.weight", keys},
                                {self + "v_proj.weight", values}},
                          model.hidden_size);
  out.gates = loader.plain_stacked(Parts{{self + "b_proj.weight", heads},
                                         {self + "f_a_proj.weight", net.key_dim},
                                         {self + "g_a_proj.weight", net.key_dim}},
                                   model.hidden_size);
  out.decay_up = loader.plain_matrix(self + "f_b_proj.weight", keys, net.key_dim);
  out.z_up = loader.plain_matrix(self + "g_b_proj.weight", values, net.key_dim);
  out.taps = loader.taps(Parts{{self + "q_conv1d.weight", keys},
                               {self + "k_conv1d.weight", keys},
                               {self + "v_conv1d.weight", values}},
                         kConvTaps);
  out.a_log = loader.vector(self + "A_log", heads);
  out.dt_bias = loader.vector(self + "dt_bias", keys);
  out.norm = loader.vector(self + "o_norm.weight", net.value_dim);
  out.output = loader.matrix(self + "o_proj.weight", model.hidden_size, values);
  return out;
}

GatedDeltaWeights load_gated_delta(const ModelConfig& model, const std::string& prefix,
                                   WeightLoader& loader) {
  const std::string self = prefix + "linear_attn.";
  const DeltaNetConfig& net = model.delta_net;
  const int channels = net.channels(), values = net.value_columns(), heads = net.num_value_heads;
  std::vector<WeightLoader::Part> in = {{self + "in_proj_qkv.weight", channels},
                                        {self + "in_proj_z.weight", values}};
  std::vector<WeightLoader::Part> gates = {{self + "in_proj_b.weight", heads},
                                           {self + "in_proj_a.weight", heads}};
  if (net.grouped) {
    in = {{self + "in_proj_qkvz.weight", channels + values}};
    gates = {{self + "in_proj_ba.weight", 2 * heads}};
  }
  GatedDeltaWeights out;
  out.input_norm = load_norm(model, prefix + "input_layernorm.weight", model.hidden_size, loader);
  out.in = loader.stacked(in, model.hidden_size);
  out.gates = loader.plain_stacked(gates, model.hidden_size);
  const WeightLoader::Part taps{self + "conv1d.weight", channels};
  out.taps = loader.taps({&taps, 1}, kConvTaps);
  out.a_log = loader.vector(self + "A_log", heads);
  out.dt_bias = loader.vector(self + "dt_bias", heads);
  out.norm = loader.vector(self + "norm.weight", net.value_dim);
  out.output = loader.matrix(self + "out_proj.weight", model.hidden_size, values);
  return out;
}

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
  Mixer mixer = Mixer::gqa;
  if (model.is_linear(index)) {
    mixer = Mixer::delta_net;
    layer.weights.delta = model.delta_net.channel_decay ? load_channel_delta(model, prefix, loader)
                                                        : load_gated_delta(model, prefix, loader);
  } else if (model.mla.kv_rank > 0) {
    mixer = Mixer::mla;
    layer.weights.mla = load_mla(model, prefix, loader);
  } else {
    layer.weights.gqa = load_gqa({model, names, loader}, model.attention(index), prefix);
  }

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
