// One layer of a model: its kind, its weights, and the arguments of an operation.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"
#include "compute/kernels/kv_layout.h"
#include "compute/layers/gated_delta.h"
#include "compute/layers/gqa.h"
#include "compute/layers/mla.h"
#include "compute/layers/mlp.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/gate.h"
#include "compute/moe/result_norms.h"
#include "compute/overlap/op.h"
#include "core/model_config.h"

namespace hocket {

// The weights of all kinds of layers; each kind uses some of them.
struct LayerWeights {
  GqaWeights gqa;                      // grouped-query attention, or
  MlaWeights mla;                      // latent attention, or
  GatedDeltaWeights delta;             // a gated delta net
  MlpWeights mlp;                      // dense layers
  GateWeights gate;                    // MoE layers
  std::vector<ExpertWeights> experts;  // experts that this rank holds, ascending
  ExpertWeights shared;                // models with shared experts
  PackedWeight shared_gate;            // n = 1; with MoeConfig::shared_gate
  ResultNorms result_norms;            // with ModelConfig::result_norms
};

// The arguments of one operation, borrowed for the call.
struct LayerCall {
  Backend& backend;
  const ModelConfig& model;
  const LayerWeights& weights;
  WorkBuffers& work;
  const KvLayer& kv;         // set in layers with attention
  const DeltaLayer& states;  // set in layers with a delta net
  Dispatcher& dispatcher;
  int layer;
  Half& half;
  std::span<uint32_t> expert_counts = {};  // [experts] choices of this layer; empty: not counted
  bool windowed = false;                   // as AttentionContext::windowed
  ForwardProbe* probe = nullptr;           // may be null

  AttentionContext attention_context() const { return {backend, model, work, kv, layer, windowed}; }
  DeltaContext delta_context() const { return {backend, model, work, states, probe}; }
  ExchangeContext exchange_context() const { return {backend, work, layer}; }
};

// A kind of layer: its graph, and one function per operation of that graph (null for the others).
using OpFn = void (*)(const LayerCall&);
struct LayerKind {
  const OpGraph* graph = nullptr;
  std::array<OpFn, kNumOps> run{};
};

struct Layer {
  const LayerKind* kind = nullptr;
  LayerWeights weights;
};

}  // namespace hocket
