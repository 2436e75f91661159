// Qwen3 and Qwen3-MoE: grouped-query attention with per-head norms of q and k; dense or
// softmax-routed MLPs.
#include <fmt/core.h>

#include "compute/models/family.h"

namespace hocket {
namespace {

constexpr size_t at(Op op) {
  return static_cast<size_t>(op);
}

void attn_in(const LayerCall& c) {
  gqa_in(c.attention_site(), c.weights.attention, c.half);
}
void attn_core(const LayerCall& c) {
  gqa_core(c.attention_site(), c.weights.attention, c.half);
}

LayerKind make_dense() {
  LayerKind kind{"qwen3_dense", &dense_graph(), {}};
  kind.run[at(Op::attn_in)] = attn_in;
  kind.run[at(Op::attn_core)] = attn_core;
  kind.run[at(Op::mlp)] = [](const LayerCall& c) {
    dense_mlp(c.backend, c.weights.mlp, static_cast<float>(c.model.rms_norm_eps), c.work, c.half);
  };
  return kind;
}

LayerKind make_moe() {
  LayerKind kind{"qwen3_moe", &moe_graph(), {}};
  kind.run[at(Op::attn_in)] = attn_in;
  kind.run[at(Op::attn_core)] = attn_core;
  kind.run[at(Op::gate)] = [](const LayerCall& c) {
    gate(c.backend, c.model, c.weights.gate, c.work, c.half);
  };
  kind.run[at(Op::dispatch_start)] = [](const LayerCall& c) {
    c.dispatcher.dispatch_start(c.backend, c.work, c.half);
  };
  kind.run[at(Op::dispatch_wait)] = [](const LayerCall& c) { c.dispatcher.dispatch_wait(c.half); };
  kind.run[at(Op::experts)] = [](const LayerCall& c) {
    const ExpertRows rows = c.half.state.arrived.take();
    const int intermediate = c.model.moe.intermediate_size;
    const int64_t first = int64_t{c.half.rows.begin} * c.model.moe.top_k;
    run_experts(c.backend, {.x = rows.x,
                            .offsets = rows.offsets,
                            .experts = c.weights.experts,
                            .intermediate = intermediate,
                            .middle = c.work.middle_rows(first, rows.x.rows, intermediate),
                            .y = rows.y});
    c.half.state.computed.set(rows);
  };
  kind.run[at(Op::combine_start)] = [](const LayerCall& c) { c.dispatcher.combine_start(c.half); };
  kind.run[at(Op::combine_wait)] = [](const LayerCall& c) {
    c.dispatcher.combine_wait(c.backend, c.work, c.half);
  };
  return kind;
}

GqaWeights load_attention(const ModelConfig& model, const std::string& prefix,
                          WeightLoader& loader) {
  const std::string self = prefix + "self_attn.";
  const int q = model.num_heads * model.head_dim;
  const int kv = model.num_kv_heads * model.head_dim;
  const std::array<WeightLoader::Part, 3> qkv = {
      {{self + "q_proj.weight", q}, {self + "k_proj.weight", kv}, {self + "v_proj.weight", kv}}};
  return {.input_norm = loader.vector(prefix + "input_layernorm.weight", model.hidden_size),
          .qkv = loader.stacked(qkv, model.hidden_size),
          .q_norm = loader.vector(self + "q_norm.weight", model.head_dim),
          .k_norm = loader.vector(self + "k_norm.weight", model.head_dim),
          .output = loader.matrix(self + "o_proj.weight", model.hidden_size, q)};
}

ExpertWeights load_swiglu(const ModelConfig& model, const std::string& prefix, int intermediate,
                          WeightLoader& loader) {
  return loader.swiglu(prefix + "gate_proj.weight", prefix + "up_proj.weight",
                       prefix + "down_proj.weight", model.hidden_size, intermediate);
}

Layer load_layer(const ModelConfig& model, int index, WeightLoader& loader) {
  static const LayerKind dense = make_dense();
  static const LayerKind moe = make_moe();
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const auto post_norm = [&] {
    return loader.vector(prefix + "post_attention_layernorm.weight", model.hidden_size);
  };

  Layer layer;
  layer.weights.attention = load_attention(model, prefix, loader);
  if (!model.layer_is_moe[index]) {
    layer.kind = &dense;
    layer.weights.mlp = {
        .norm = post_norm(),
        .mlp = load_swiglu(model, prefix + "mlp.", model.intermediate_size, loader),
        .intermediate = model.intermediate_size};
    return layer;
  }
  layer.kind = &moe;
  layer.weights.gate = {
      .norm = post_norm(),
      .gate = loader.matrix(prefix + "mlp.gate.weight", model.moe.num_experts, model.hidden_size)};
  for (int e = 0; e < model.moe.num_experts; ++e)
    layer.weights.experts.push_back(load_swiglu(model, fmt::format("{}mlp.experts.{}.", prefix, e),
                                                model.moe.intermediate_size, loader));
  return layer;
}

}  // namespace

const ModelFamily kQwen3 = {"Qwen3ForCausalLM", load_layer};
const ModelFamily kQwen3Moe = {"Qwen3MoeForCausalLM", load_layer};

}  // namespace hocket
