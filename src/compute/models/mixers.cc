#include "compute/models/mixers.h"

#include <algorithm>
#include <array>
#include <vector>

#include "compute/models/layer_loading.h"

namespace hocket {
namespace {

void load_gqa(const LayerSource& from, LayerWeights& weights) {
  const auto& [model, names, layer, prefix, loader] = from;
  const AttentionConfig heads = model.attention(layer);
  const std::string self = prefix + "self_attn.";
  const int q = heads.num_heads * heads.key_dim, k = heads.num_kv_heads * heads.key_dim;
  const std::array<WeightLoader::Part, 3> qkv = {
      {{self + "q_proj.weight", heads.num_heads * model.query_columns(heads.key_dim)},
       {self + "k_proj.weight", k},
       {self + (heads.values_are_keys ? "k_proj.weight" : "v_proj.weight"),
        heads.num_kv_heads * heads.value_dim}}};
  GqaWeights& out = weights.gqa;
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
}

void load_mla(const LayerSource& from, LayerWeights& weights) {
  const auto& [model, names, layer, prefix, loader] = from;
  const std::string self = prefix + "self_attn.";
  const MlaConfig& mla = model.mla;
  const int heads = model.num_heads * model.head_dim;
  const std::array<WeightLoader::Part, 2> down = {
      {mla.q_rank > 0 ? WeightLoader::Part{self + "q_a_proj.weight", mla.q_rank}
                      : WeightLoader::Part{self + "q_proj.weight", heads},
       {self + "kv_a_proj_with_mqa.weight", mla.kv_rank + mla.rope_dim}}};
  MlaWeights& out = weights.mla;
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
}

// Kimi's names for a delta net whose decays are those of channels.
void load_channel_delta(const LayerSource& from, LayerWeights& weights) {
  const auto& [model, names, layer, prefix, loader] = from;
  using Parts = std::vector<WeightLoader::Part>;
  const std::string self = prefix + "self_attn.";
  const DeltaNetConfig& net = model.delta_net;
  const int keys = net.key_columns(), values = net.value_columns(), heads = net.num_value_heads;
  GatedDeltaWeights& out = weights.delta;
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
}

void load_gated_delta(const LayerSource& from, LayerWeights& weights) {
  const auto& [model, names, layer, prefix, loader] = from;
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
  GatedDeltaWeights& out = weights.delta;
  out.input_norm = load_norm(model, prefix + "input_layernorm.weight", model.hidden_size, loader);
  out.in = loader.stacked(in, model.hidden_size);
  out.gates = loader.plain_stacked(gates, model.hidden_size);
  const WeightLoader::Part taps{self + "conv1d.weight", channels};
  out.taps = loader.taps({&taps, 1}, kConvTaps);
  out.a_log = loader.vector(self + "A_log", heads);
  out.dt_bias = loader.vector(self + "dt_bias", heads);
  out.norm = loader.vector(self + "norm.weight", net.value_dim);
  out.output = loader.matrix(self + "out_proj.weight", model.hidden_size, values);
}

void delta_in(const LayerCall& c) {
  gated_delta_in(c.delta_context(), c.weights.delta, c.half);
}
void delta_core(const LayerCall& c) {
  gated_delta_core(c.delta_context(), c.weights.delta, c.half);
}

constexpr std::array kMixers = {
    // Delta nets with decays of channels.
    Mixer{.matches =
              [](const ModelConfig& model, int layer) {
                return model.is_linear(layer) && model.delta_net.channel_decay;
              },
          .load = load_channel_delta,
          .in = delta_in,
          .core = delta_core},
    // Delta nets with decays of heads.
    Mixer{.matches = [](const ModelConfig& model, int layer) { return model.is_linear(layer); },
          .load = load_gated_delta,
          .in = delta_in,
          .core = delta_core},
    // Latent attention.
    Mixer{
        .matches = [](const ModelConfig& model, int) { return model.mla.kv_rank > 0; },
        .load = load_mla,
        .in = [](const LayerCall& c) { mla_in(c.attention_context(), c.weights.mla, c.half); },
        .core = [](const LayerCall& c) { mla_core(c.attention_context(), c.weights.mla, c.half); }},
    // Grouped-query attention, with a window or without.
    Mixer{.matches = [](const ModelConfig&, int) { return true; },
          .load = load_gqa,
          .in = [](const LayerCall& c) { gqa_in(c.attention_context(), c.weights.gqa, c.half); },
          .core =
              [](const LayerCall& c) { gqa_core(c.attention_context(), c.weights.gqa, c.half); }}};

}  // namespace

std::span<const Mixer> mixers() {
  return kMixers;
}

const Mixer& mixer_of(const ModelConfig& model, int layer) {
  return *std::ranges::find_if(kMixers, [&](const Mixer& m) { return m.matches(model, layer); });
}

}  // namespace hocket
