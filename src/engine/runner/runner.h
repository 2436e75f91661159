// The loaded model with all memory it needs: weights, KV pages, work buffers, workers. It runs
// forward passes, alone or with other ranks, and knows no request. Owner: the engine (or `check`,
// which runs passes by hand). Thread: engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "base/machine.h"
#include "base/result.h"
#include "compute/comm/all_to_all.h"
#include "compute/models/model.h"
#include "compute/moe/expert_parallel.h"
#include "compute/moe/placement.h"
#include "core/server_settings.h"
#include "engine/lockstep/overlap_settings.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/expert_places.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/model_choice.h"
#include "engine/runner/packed_weight_cache.h"

namespace hocket {

// The place of one rank among several that share the experts, and its part of the machine.
struct RankConfig {
  int rank = 0, num_ranks = 1;
  Machine machine;  // its cores and memory
  // The replicas of experts in each layer of each rank on which the ranks agreed, for
  // --ep-num-redundant-experts auto; nullopt: this process decides.
  std::optional<int> replicas = std::nullopt;
};

// The connection of the ranks of one epoch. Every part of it outlives the exchange.
struct AttachOptions {
  Transport& transport;
  uint32_t epoch = 0;
  std::optional<RankSet> present;  // option of AllToAll, as the next three
  const std::atomic<uint32_t>* abort = nullptr;
  ExchangeListener* watch = nullptr;
  Duration stall_timeout = AllToAll::Options().stall_timeout;
};

// Options of one pass: plan, id, and observers.
struct PassOptions {
  PassSpec id;  // agreed by the ranks; its `parts` are the plan's
  Plan plan;    // agreed by the ranks, if there are several
  bool is_trial = false;
  Ledger* ledger = nullptr;           // books the times of the open step; null: they are not booked
  ForwardProbe* probe = nullptr;      // may be null
  View<uint32_t> expert_counts = {};  // see Model::Pass
};

// Other places for the experts of a layer, and the weights of those that this rank gets.
struct LayerMove {
  LayerMove(int of, const Placement& to, int rank) : layer(of), placement(to), places(to, rank) {}
  int layer = 0;
  Placement placement;
  ExpertParallelDispatcher::LayerPlaces places;  // places by the same placement
  std::vector<ExpertWeights> experts;            // those of this rank's places, ascending
};

class Runner {
 public:
  struct Options {
    ServerSettings settings;
    std::function<void(const LoadProgress&)> progress;
    std::optional<TokenId> tokenizer_eos;
    // null: the only rank, which computes the bits of ep_size ranks.
    const RankConfig* seat = nullptr;
  };
  // Plans memory, loads the weights and makes all buffers. Errors: those of Engine::create.
  static Result<std::unique_ptr<Runner>> create(const Options& options);

  const EngineInfo& info() const { return info_; }
  const MemoryPlan& plan() const { return plan_; }
  const Machine& machine() const { return machine_; }
  const ModelChoice& choice() const { return choice_; }
  const OverlapSettings& overlap() const { return overlap_; }
  // Returns the rows that a kernel computes at once: halves are cut at multiples of it if possible.
  int row_tile() const { return info_.isa >= Isa::amx ? kTileRows : 1; }
  // Returns which rank has which experts.
  Placements placement() const;
  // Exchanges the experts of a layer for those of `move`, which has what was before afterwards.
  // Called between two passes, the same two on all ranks, or while detached. Allocates nothing.
  // Precondition: ParallelSettings::moves_experts().
  void place(LayerMove& move);
  // The weights of the experts of a layer, as its placement has them here.
  std::span<const ExpertWeights> experts(int layer) const { return model_->experts(layer); }
  // Returns what the model's files were when they were loaded (WeightSource::identity()).
  std::optional<uint64_t> source_identity() const { return weights_.source_identity; }
  // Gives the memory for experts that are loaded while serving: moving_bytes of the plan.
  Buffer take_moving_memory() { return std::move(weights_.moving_memory); }
  // Returns how that memory is divided; nothing unless experts move.
  const MovingMemory& moving() const { return weights_.moving; }
  // True if the weights are those in the file of --weight-cache.
  bool maps_weights() const { return weights_.kept && weights_.kept->is_mapped(); }
  // True if the bytes are in the model's own memory, which place() lets others use, and not in the
  // file of --weight-cache.
  bool owns(const void* bytes) const {
    const auto* const at = static_cast<const std::byte*>(bytes);
    const Buffer& memory = weights_.memory;
    return at >= memory.data() && at < memory.data() + memory.bytes();
  }
  Backend& backend() { return *backend_; }
  WorkerPool& workers() { return *workers_; }

  // Runs a pass of the only rank; logits() can then read the rows batch.output_rows.
  void forward(const ForwardBatch& batch, const Plan& plan = {}, ForwardProbe* probe = nullptr);
  // Runs a pass of one of several ranks; all ranks run this pass, those without rows too. Errors:
  // lost_rank; then no result of the pass may be used.
  Result<void> forward_together(const ForwardBatch& batch, const PassOptions& pass);
  // Runs a module for multi-token prediction over `batch`. Several ranks agree on the pass, and all
  // run it. Errors: those of forward_together().
  Result<void> forward_module(int module, const ForwardBatch& batch,
                              const Model::HiddenRows& hidden, const PassSpec& pass = {});
  // Returns true if passes exchange rows with other ranks.
  bool exchanges() const { return placement_.has_value(); }
  // Returns one of the spare pages of the only module (MemoryPlan::num_spare_pages).
  PageId spare_page(int index) const {
    HOCKET_CHECK(index < plan_.num_spare_pages);
    return PageId{plan_.num_pages + index};
  }
  // Returns the memory of keys and values that layers of full and latent attention use.
  PagePool& pages() { return *pages_; }
  // Returns the memory of delta nets; null if the model has none.
  StatePool* states() { return states_ ? &*states_ : nullptr; }
  // Returns the memory of keys and values of window layers; null if they have no pages of their
  // own.
  PagePool* windows() { return window_pages_ ? &*window_pages_ : nullptr; }
  // Returns the model, or one of its modules, for HiddenRows::of.
  const Model& model() const { return *model_; }
  // Returns the logits [count, vocabulary] of output rows [begin, begin + count), count <=
  // plan().work.max_logits_rows; valid until the next call.
  View<float> logits(int begin, int count);
  // Returns the page of window layers that stays clear, behind those that are planned; kNoPage if
  // such layers have no pages of their own.
  PageId unseen_page() const { return window_pages_ ? PageId{plan_.num_window_pages} : kNoPage; }

  WorkBuffers& work() { return work_; }
  // Makes the exchange of rows with the other ranks, before passes together. Errors: out_of_memory.
  Result<AllToAll*> attach(const AttachOptions& attached);
  // Ends the exchange, and with it all use of the transport.
  void detach();
  // Returns in words what must be equal on all ranks for their messages to fit: "2112 rows of
  // prompts and 64 of answers; 4096 .. bytes; ..."
  std::string terms() const;

 private:
  Runner() = default;
  Result<void> load(const Options& options);
  // The steps of load(), in this order.
  Result<void> choose(const Options& options);
  Result<void> open_files(const ServerSettings& settings);
  Result<void> make_plan(const ServerSettings& settings);
  Result<void> load_weights(const Options& options);
  void choose_kept(const ModelSettings& settings);
  void keep_weights();
  Result<void> make_memory(int page_tokens);
  ExpertParallelDispatcher::Options dispatcher_options() const;
  void describe(const ServerSettings& settings);

  // The packed weights, and what is known of the model's files.
  struct Weights {
    std::unique_ptr<WeightSource> source;  // until the weights are loaded
    std::optional<uint64_t> source_identity;
    uint64_t fingerprint = 0;               // hash of how they are packed
    Buffer memory;                          // empty if `kept` has mapped them
    std::optional<PackedWeightCache> kept;  // the file of --weight-cache, if it is used
    Buffer moving_memory;                   // until take_moving_memory()
    MovingMemory moving;
  };

  std::optional<RankConfig> seat_;
  Machine machine_;
  ModelChoice choice_;
  OverlapSettings overlap_;
  double cut_threshold_ = 0;  // SplitOptions::cut_threshold
  EngineInfo info_;
  MemoryPlan plan_;
  std::vector<int> cpus_;  // cpus that the workers are pinned to; empty: any
  std::unique_ptr<WorkerPool> workers_;
  std::optional<Backend> backend_;
  Weights weights_;
  std::optional<Model> model_;
  std::optional<Placements> placement_;  // null for the only rank
  std::unique_ptr<AllToAll> exchange_;   // null for the only rank
  std::unique_ptr<Dispatcher> dispatcher_;
  ExpertParallelDispatcher* parallel_ = nullptr;  // dispatcher_, while ranks are attached
  std::optional<PagePool> pages_, window_pages_;  // the latter for models with sliding windows
  std::optional<StatePool> states_;               // models with delta nets
  WorkBuffers work_;
  std::array<Half, kMaxHalves> halves_;
};

}  // namespace hocket
