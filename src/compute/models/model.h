// A decoder-only model in memory, and its forward pass: embedding, layers by an order, final norm,
// head.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "compute/forward/forward_batch.h"
#include "compute/forward/split.h"
#include "compute/forward/work_buffers.h"
#include "compute/kernels/rope.h"
#include "compute/kv/page_pool.h"
#include "compute/kv/state_pool.h"
#include "compute/models/layer.h"
#include "compute/models/mtp_module.h"
#include "compute/moe/placement.h"
#include "compute/overlap/executor.h"
#include "compute/overlap/ledger.h"
#include "compute/weights/loader.h"

namespace hocket {

class Model {
 public:
  // Asks `loader` for the weights; a measuring loader only counts bytes. The views point into the
  // loader's memory. `experts`: the experts that this rank holds in each layer; without it all.
  // Errors: unsupported_model; else the loader's status().
  static Result<Model> load(const ModelConfig& config, const HeldExperts& experts,
                            WeightLoader& loader);
  static Result<Model> load(const ModelConfig& config, WeightLoader& loader);

  // Loads one expert of a layer as load() does. Layers behind the last are those of modules.
  // Errors stay in the loader.
  static ExpertWeights load_expert(const ModelConfig& config, int layer, int expert,
                                   WeightLoader& loader);

  const ModelConfig& config() const { return config_; }
  // Return the experts that this rank holds in a layer, ascending; exchange them for others of the
  // same number and format, between two passes. Layers behind the last are those of modules.
  std::span<const ExpertWeights> experts(int layer) const;
  void swap_experts(int layer, std::vector<ExpertWeights>& others);
  // The modules for multi-token prediction that config() says are loaded. Each is played like a
  // model; their keys and values are in further layers of Pass::pages, behind the model's own.
  std::span<const Model> modules() const { return modules_; }

  // The hidden rows that a module joins with the tokens of a batch.
  struct HiddenRows {
    const Model* of = nullptr;      // a pass of this model or module made them
    View<const float> residual;     // work.residual after that pass
    std::span<const int32_t> rows;  // [batch rows] the row of it for each row of the batch
  };

  struct Pass {
    Backend& backend;
    WorkBuffers& work;
    PagePool& pages;          // serves the layers with attention
    PagePool* window_pages;   // serves those of them that have a window; null: `pages` does
    const StatePool* states;  // serves the layers with delta nets; null: there are none
    Dispatcher& dispatcher;   // dispatcher for the experts that load() was given
    const Order& order;
    std::span<Half> halves;  // order.num_halves elements
    SplitRule split;         // where the batch is cut into two halves
    PassSpec id = {};
    ForwardProbe* probe = nullptr;
    // [layers, experts] counters to which the choices of these rows are added; empty: not counted.
    View<uint32_t> expert_counts = {};
    Ledger* ledger = nullptr;  // books the operations, if its step is open
    HiddenRows hidden = {};    // only for a module
  };
  // Runs the layers over `batch`; afterwards work.hidden holds the final norm of batch.output_rows,
  // in this sequence. Pages are copied and fresh pages cleared first. Where ranks exchange rows, a
  // rank without rows takes part with an empty batch.   Thread: engine. Errors: the dispatcher's
  // status(); then the results are worthless.
  Result<void> forward(const ForwardBatch& batch, const Pass& pass) const;
  // Computes and returns work.logits[0 .. count) = head of work.hidden[begin .. begin + count);
  // count <= limits.max_logits_rows.
  View<float> logits(Backend& backend, WorkBuffers& work, int begin, int count) const;

 private:
  Model() = default;
  Model module(const ModelFamily& family, int index, const HeldExperts& experts,
               WeightLoader& loader) const;
  void embed_rows(const ForwardBatch& batch, const Pass& pass) const;
  void join_rows(const ForwardBatch& batch, const Pass& pass) const;
  void begin_rows(const ForwardBatch& batch, const Pass& pass) const;
  void finish_rows(const ForwardBatch& batch, const Pass& pass) const;
  void split_rows(const ForwardBatch& batch, const Pass& pass) const;
  bool is_apart(const Pass& pass, int layer) const {
    return pass.window_pages != nullptr && config_.is_local(layer);
  }
  KvLayer kv_layer(const Pass& pass, int layer) const;

  ModelConfig config_;
  RopeFrequencies rope_, local_rope_;
  PackedWeight embedding_, head_;
  std::span<const float> final_norm_;
  std::vector<Layer> layers_;
  JoinWeights join_;  // a module only
  std::vector<Model> modules_;
  // [layers] The number of a layer among those with, or without, a delta net.
  std::vector<int> index_of_kind_;
  // [layers] Its number among the local layers, or the others.
  std::vector<int> index_apart_;
  // The layer with attention in which most query heads share a key head: the rows of its tasks are
  // few enough for all layers.
  int planned_layer_ = 0;
};

}  // namespace hocket
