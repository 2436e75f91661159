// One layer of a model: its kind, its weights, and what an operation is given.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"
#include "compute/kernels/kv_layout.h"
#include "compute/layers/gqa.h"
#include "compute/layers/mla.h"
#include "compute/layers/mlp.h"
#include "compute/moe/dispatcher.h"
#include "compute/moe/gate.h"
#include "compute/overlap/op.h"
#include "core/model_config.h"

namespace hocket {

// The parts that kinds of layers are made of; a kind uses some of them.
struct LayerWeights {
  GqaWeights gqa;                      // either
  MlaWeights mla;                      // or
  MlpWeights mlp;                      // dense layers
  GateWeights gate;                    // MoE layers
  std::vector<ExpertWeights> experts;  // those this rank holds, ascending
  ExpertWeights shared;                // of models with shared experts
};

// One operation's surroundings. Borrowed for the call.
struct LayerCall {
  Backend& backend;
  const ModelConfig& model;
  const LayerWeights& weights;
  WorkBuffers& work;
  const KvLayer& kv;
  Dispatcher& dispatcher;
  int layer;
  Half& half;
  std::span<uint32_t> expert_counts = {};  // [experts] of this layer; empty: nobody counts

  AttentionSite attention_site() const { return {backend, model, work, kv}; }
  ExchangeSite exchange_site() const { return {backend, work, layer}; }
};

// A kind of layer: its graph, and one function an operation of that graph (null elsewhere).
using OpFn = void (*)(const LayerCall&);
struct LayerKind {
  std::string_view name;
  const OpGraph* graph = nullptr;
  std::array<OpFn, kNumOps> run{};
};

struct Layer {
  const LayerKind* kind = nullptr;
  LayerWeights weights;
};

}  // namespace hocket
