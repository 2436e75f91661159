// The loaded model with all memory it needs: weights, KV pages, work buffers, workers. Plays
// forward passes, alone or with other ranks; knows no request. Owner: the engine (or `check`, which
// plays passes by hand). Thread: engine.
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
#include "compute/moe/dispatcher.h"
#include "compute/moe/placement.h"
#include "compute/weights/packed_file.h"
#include "core/server_settings.h"
#include "engine/engine_info.h"
#include "engine/forecast/memory_plan.h"
#include "engine/forecast/model_choice.h"
#include "engine/ranks/overlap_settings.h"

namespace hocket {

// How many workers, and where. Errors: bad_value (--cpu-bind, --num-threads).
Result<WorkerPool::Options> choose_workers(const ComputeSettings& settings, const Machine& machine);

// One of several ranks over which the experts are spread, and what it has of the machine.
struct RankSeat {
  int rank = 0, num_ranks = 1;
  Machine machine;  // its cores and memory
};

// What the ranks of an epoch meet over. All of it outlives the exchange.
struct Meeting {
  Transport& transport;
  uint32_t epoch = 0;
  const std::atomic<uint32_t>* abort = nullptr;  // AllToAll::Options, as are the next two
  ExchangeWatch* watch = nullptr;
  Duration stall_timeout = AllToAll::Options().stall_timeout;
};

// How a pass is played and who sees it.
struct PassWish {
  PassId id;  // of several ranks, as they agreed; its parts are the plan's
  Plan plan;  // likewise
  bool is_shadow = false;
  Ledger* ledger = nullptr;           // whose step is open; null: nobody books it
  ForwardProbe* probe = nullptr;      // may be null
  View<uint32_t> expert_counts = {};  // as Model::Pass
};

class Runner {
 public:
  struct Options {
    ServerSettings settings;
    std::function<void(const LoadProgress&)> progress;
    std::optional<TokenId> tokenizer_eos;
    const RankSeat* seat = nullptr;  // null: the only rank. Its bits are those of ep_size ranks.
  };
  // Errors: those of Engine::create.
  static Result<std::unique_ptr<Runner>> create(const Options& options);

  const EngineInfo& info() const { return info_; }
  const MemoryPlan& plan() const { return plan_; }
  const Machine& machine() const { return machine_; }
  const ModelChoice& choice() const { return choice_; }
  const OverlapSettings& overlap() const { return overlap_; }
  // Halves are cut on multiples of so many rows where possible: what a kernel computes at once.
  int row_tile() const { return info_.isa >= Isa::amx ? kTileRows : 1; }
  // Of the experts, over all ranks.
  Placement placement() const;
  Backend& backend() { return *backend_; }
  WorkerPool& workers() { return *workers_; }

  // Afterwards hidden rows for batch.output_rows are ready for logits(). Of the only rank.
  void forward(const ForwardBatch& batch, const Plan& plan = {}, ForwardProbe* probe = nullptr);
  // The same as one of several ranks, which all play this pass, with no rows too. Errors:
  // lost_rank; then nothing of it may be used.
  Result<void> forward_together(const ForwardBatch& batch, const PassWish& wish);
  // Logits of output rows [begin, begin + count), count <= plan().work.max_logits_rows; valid until
  // the next call.
  View<float> logits(int begin, int count);

  WorkBuffers& work() { return work_; }
  // Of several ranks, before passes together: what they exchange rows with is made. Errors:
  // out_of_memory.
  Result<AllToAll*> attach(const Meeting& meeting);
  // It ends, and with it all use of the transport.
  void detach();
  // What must be equal on all ranks, or their messages would not fit: "2112 rows of 4096 bytes,
  // ..."
  std::string terms() const;

 private:
  Runner() = default;
  Result<void> load(const Options& options);
  // Its steps, in this order.
  Result<void> choose(const Options& options);
  Result<void> open_files(const ModelSettings& settings);
  Result<void> make_plan(const ServerSettings& settings);
  Result<void> load_weights(const Options& options);
  // Of --weight-cache.
  struct KeptWeights {
    std::string folder;
    std::filesystem::path path;
    PackedKey key;
  };
  std::optional<KeptWeights> kept_weights(const ModelSettings& settings);
  const std::byte* map_weights(const KeptWeights& kept);  // null: they have to be packed
  void keep_weights(const KeptWeights& kept);
  void announce_weights(const WeightLoader& loader);
  Result<void> make_memory(int page_tokens);
  ExpertParallelDispatcher::Options dispatcher_options() const;
  void describe(const ServerSettings& settings);

  std::optional<RankSeat> seat_;
  Machine machine_;
  ModelChoice choice_;
  OverlapSettings overlap_;
  double cut_threshold_ = 0;              // SplitWish
  std::unique_ptr<WeightSource> source_;  // until the weights are loaded
  EngineInfo info_;
  MemoryPlan plan_;
  std::vector<int> cpus_;  // that the workers are pinned to; empty: any
  std::unique_ptr<WorkerPool> workers_;
  std::optional<Backend> backend_;
  uint64_t weight_fingerprint_ = 0;  // of how the weights are packed
  Buffer weights_;                   // or, of --weight-cache:
  std::optional<PackedFile> packed_;
  std::optional<Model> model_;
  std::optional<Placement> placement_;  // several ranks only
  std::unique_ptr<AllToAll> exchange_;  // likewise
  std::unique_ptr<Dispatcher> dispatcher_;
  std::optional<PagePool> pages_;
  WorkBuffers work_;
  std::array<Half, kMaxHalves> halves_;
};

}  // namespace hocket
