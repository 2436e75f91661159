// Loads experts of this rank while it serves, as at the start: from the model's files, by the same
// code, so their bits are those that any rank has. They land in memory that is planned at start
// (ExpertMemory), and what a layer gives up is the memory for the next. With --weight-cache nothing
// can be given up, because the file stays as it is: experts that are mapped there again are used
// from there again. Owner: ExpertMover. Thread: one of its two at a time,
// except where noted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/processor_time.h"
#include "base/result.h"
#include "compute/weights/weight_source.h"
#include "core/server_settings.h"
#include "engine/balance/expert_memory.h"
#include "engine/balance/loading_threads.h"
#include "engine/runner/runner.h"

namespace hocket {

class ExpertLoader {
 public:
  struct Options {
    ModelSettings model;  // where the files are
    int rank = 0;
    Duration (*used_time)() = thread_processor_time;  // measures the cost of loading
    std::function<bool()> is_over;  // asked before each expert: true ends the loading
  };
  // All that was loaded: experts, their bytes, and the time of one core for them.
  struct Loaded {
    uint64_t num_experts = 0, num_bytes = 0;
    double seconds = 0;
    TimePoint last_at{};  // when the last one was loaded
  };
  // The runner outlives it.
  ExpertLoader(Options options, Runner& runner);

  // Returns other places of a layer with this rank's experts, for Runner::place(); reclaim()
  // follows. `threads`, which the calling thread has adopted, pack each expert together, and the
  // kernel reads the next meanwhile; null: the caller alone packs. Errors: of the files,
  // out_of_memory, shutting_down (it is over).
  Result<std::unique_ptr<LayerMove>> load_layer(int layer, const Placement& to,
                                                LoadingThreads* threads = nullptr);
  // Takes back the memory of experts of `move` that the model does not use.
  void reclaim(const LayerMove& move);
  // The next expert opens the files again, as they are then.
  void close_files() { source_.reset(); }

  Loaded loaded() const;  // Thread: any.
  // Returns since when the expert is read that is under way; nullopt if none is. Thread: any.
  std::optional<TimePoint> reading_since() const;

 private:
  // An expert of a layer that is loaded, and the one behind it; -1: none.
  struct Wanted {
    int layer = 0, expert = 0, next = -1;
  };
  Result<ExpertWeights> load_expert(const Wanted& wanted, LoadingThreads* threads);
  Result<ExpertWeights> read_expert(const Wanted& wanted, LoadingThreads* threads);
  void ask_ahead(int layer, int expert) const;
  const ExpertWeights* find_in_file(int layer, int expert) const;
  Result<void> open_source();

  const Options options_;
  Runner& runner_;
  const Placements home_;                            // at the start
  std::vector<std::vector<ExpertWeights>> in_file_;  // by layer; empty: no --weight-cache
  std::unique_ptr<WeightSource> source_;             // open while layers are loaded
  ExpertMemory memory_;

  mutable Mutex mutex_;
  Loaded loaded_ HOCKET_GUARDED_BY(mutex_);
  std::optional<TimePoint> reading_since_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
