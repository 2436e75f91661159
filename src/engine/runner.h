// The loaded model with all memory it needs: weights, KV pages, work buffers, workers. Plays
// forward passes; knows no request. Owner: the engine (or `check`, which plays passes by hand).
// Thread: engine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/machine.h"
#include "base/result.h"
#include "compute/models/model.h"
#include "compute/moe/local_dispatcher.h"
#include "core/server_settings.h"
#include "engine/engine_info.h"
#include "engine/memory_plan.h"
#include "engine/model_choice.h"

namespace hocket {

// How many workers, and where. Errors: bad_value (--cpu-bind, --num-threads).
Result<WorkerPool::Options> choose_workers(const ComputeSettings& settings, const Machine& machine);

class Runner {
 public:
  struct Options {
    ServerSettings settings;
    std::function<void(const LoadProgress&)> progress;
    std::optional<TokenId> tokenizer_eos;
  };
  // Errors: those of Engine::create.
  static Result<std::unique_ptr<Runner>> create(const Options& options);

  const EngineInfo& info() const { return info_; }
  const MemoryPlan& plan() const { return plan_; }
  const Machine& machine() const { return machine_; }
  Backend& backend() { return *backend_; }
  WorkerPool& workers() { return *workers_; }

  // Which order the next passes play; serial at first. Bug if it is not legal for this model.
  void play(const Order& order);
  // Afterwards hidden rows for batch.output_rows are ready for logits().
  void forward(const ForwardBatch& batch, ForwardProbe* probe = nullptr);
  // Logits of output rows [begin, begin + count), count <= plan().work.max_logits_rows; valid until
  // the next call.
  View<float> logits(int begin, int count);

  WorkBuffers& work() { return work_; }

 private:
  Runner() = default;
  Result<void> load(const Options& options);
  // Its steps, in this order.
  Result<void> choose(const Options& options);
  Result<void> open_files(const ModelSettings& settings);
  Result<void> make_plan(const ServerSettings& settings);
  Result<void> load_weights(const Options& options);
  Result<void> make_memory(int page_tokens);
  void describe(const ServerSettings& settings);

  Machine machine_;
  ModelChoice choice_;
  std::unique_ptr<WeightSource> source_;  // until the weights are loaded
  EngineInfo info_;
  MemoryPlan plan_;
  std::unique_ptr<WorkerPool> workers_;
  std::optional<Backend> backend_;
  Buffer weights_;
  std::optional<Model> model_;
  std::optional<LocalDispatcher> dispatcher_;
  std::optional<PagePool> pages_;
  WorkBuffers work_;
  const Order* order_ = &serial_order();
  std::array<Half, kMaxHalves> halves_;
};

}  // namespace hocket
