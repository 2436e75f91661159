// Works out which experts should move, and loads those that this rank gets, beside the steps, and
// those that the places of an epoch have, between two epochs:
//
//   engine   plan() .. planned()  load() .. num_loaded() -> next() | step | moved() .. num_loaded()
//   mover    changes_for()               layer by layer ----'                  '---- next layer
//
// The memory for one layer's experts of this rank is planned at start, and what a layer gives up is
// the memory for the next. So never more than that is in flight. With --weight-cache nothing can be
// given up: the experts that are not used from that file (ExpertLoader) take memory, which is
// planned at start for --tolerate-ranks.
//
// The thread `mover` has the lowest priority, so it computes in the gaps of the steps. Between two
// epochs no step runs and clients wait, so the thread `takeover` loads then, with that of any
// thread, and as many threads as the rank has workers pack each expert together. One of the two
// works at a time.
// Thread: engine, except where noted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/processor_time.h"
#include "base/result.h"
#include "base/thread.h"
#include "core/server_settings.h"
#include "engine/balance/epoch_loading.h"
#include "engine/balance/epoch_places.h"
#include "engine/balance/expert_changes.h"
#include "engine/balance/expert_loader.h"
#include "engine/balance/loading_threads.h"
#include "engine/balance/moving_steps.h"
#include "engine/balance/retries.h"
#include "engine/runner/runner.h"
#include "engine/stats/expert_move_stats.h"
#include "engine/stats/expert_stats.h"

namespace hocket {

class ExpertMover {
 public:
  struct Options {
    ModelSettings model;  // where the files are
    Rebalancer rebalance;
    int rank = 0;
    // Time for which layers that cannot be loaded for an epoch are tried again.
    Duration max_retry_time{};
    // One expert may take this long to be loaded; beyond, its files are taken to hang.
    Duration max_expert_time = std::chrono::seconds(60);
    std::function<void()> wake;  // called when the experts are loaded; may be empty
    Duration (*used_time)() = thread_processor_time;  // measures the cost of loading
  };
  // The runner, which was made with --enable-eplb or --tolerate-ranks, and the stats outlive it.
  ExpertMover(Options options, Runner& runner, ExpertStats& stats);
  // Ends what is under way; nothing computes any more.
  ~ExpertMover();

  // Begins to work out the changes for `counts` (changes_for()), at most ExpertStats::num_counts(),
  // of which it takes a copy. Whatever else is begun before planned() returns them ends this.
  // Allocates nothing.
  void plan(std::span<const uint64_t> counts, uint64_t num_steps);
  // Begins to work out the changes by which `stay` alone have all experts, as in their next epoch;
  // the other ranks keep theirs. There are none if `stay` have too few places.
  void plan_for(const RankSet& stay);
  // Returns the changes; null while they are not known. They stay until the next plan().
  const ExpertChanges* planned() const;
  // Begins to load the experts of the changes, one layer after the other.
  void load();
  // Returns how many layers are loaded, of those that change. It continues behind moved().
  int num_loaded() const { return num_loaded_.load(std::memory_order_acquire); }
  // True if the changes were given up, for the reason in the stats.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Gives the changes up if their files hang. Returns true if the thread waits for files that hang,
  // be they those of these changes or of earlier ones.
  bool check_files();
  // Returns the move of the layer that was loaded last, for Runner::place(); moved() follows when
  // the step is over.
  LayerMove& next();
  void moved();
  // Gives up the layers that have not changed.
  void drop();

  // Begins to load the experts that this rank has in an epoch of `ranks`. If all ranks are there,
  // these are the experts of the start, else those of Placement::among(). It is called while no
  // step runs, and a later call replaces an earlier one. A layer that cannot be loaded is tried
  // again for Options::max_retry_time (engine/balance/retries.h). Returns how long the rank that
  // loads most will take at most, as far as is known: the time that one core needs; 0 if nothing is
  // begun.
  Duration load_for_epoch(const RankSet& ranks);
  // Gives up what load_for_epoch() began if no expert has arrived for Options::max_expert_time.
  // Thread: engine.
  void check_progress();
  // Returns true if load_for_epoch() has loaded the experts for `ranks`, and end_epoch() was not
  // called since.
  bool has_loaded(const RankSet& ranks) const;
  // Ends an epoch, in which experts may have moved, and gives up the loading under way.
  void end_epoch();
  // last_load_error() returns why loading a layer failed, while it is tried again.
  // final_load_error() returns why it was given up; then this rank can join no further epoch.
  // Both return nullopt if there was no such error. Thread: any.
  std::optional<Error> last_load_error() const;
  std::optional<Error> final_load_error() const;

  // Return the seconds of one core for a byte that is loaded, as far as is known, and the bytes of
  // an expert.
  double seconds_per_byte() const;
  int64_t expert_bytes() const { return runner_.moving().of_layers.bytes; }
  ExpertMoveStats stats() const;  // Thread: any.
  void note_balance_check(const ExpertChanges& changes, double gain_seconds, double cost_seconds,
                          bool moves);
  void note_step(const MovingSteps::Comparison& step) {
    MutexLock lock(mutex_);
    ++stats_.steps_total;
    stats_.step_seconds_total += step.seconds;
    stats_.usual_seconds_total += step.usual_seconds;
  }

 private:
  enum class Task : uint8_t { none, plan, plan_for, load, load_for_epoch };
  // The arguments of plan() or plan_for().
  struct PlanInput {
    std::vector<uint64_t> counts = {};
    uint64_t num_steps = 0;
    RankSet stay = {};
  };
  void begin(Task task);
  // Does the tasks for which `is_mine` is true, while the other thread does none.
  void run(bool (*is_mine)(Task));
  void do_task(Task task, const PlanInput& input);
  void work_out(Task task, const PlanInput& input);
  void load_layers();
  void load_places();
  // Loads a layer, trying again as often as `retries` says. Returns false if it was given up.
  bool load_layer_with_retries(int layer, const Placement& to, Retries& retries);
  bool is_over() const;  // as ExpertLoader::Options::is_over
  bool is_superseded() const;
  void note_load_error(const Error& why, Duration remaining);
  void log_loaded(const RankSet& ranks, const ExpertLoader::Loaded& before, TimePoint since) const;
  void fail_with(const Error& why);
  bool is_dropped() const { return dropped_.load(std::memory_order_acquire); }

  const Options options_;
  Runner& runner_;
  ExpertStats& stats_of_rows_;
  EpochPlaces places_;

  // The thread that has a task alone uses these.
  bool may_be_dropped_ = false;  // by drop(): while layers are loaded for a change
  ExpertLoader loader_;
  LoadingThreads threads_;  // for `takeover` alone
  ExpertChanges changes_;
  std::unique_ptr<LayerMove> move_;

  std::atomic<bool> planned_{false}, failed_{false}, dropped_{false};
  std::atomic<int> num_loaded_{0};

  mutable Mutex mutex_;
  std::condition_variable changed_;
  Task task_ HOCKET_GUARDED_BY(mutex_) = Task::none;  // the next
  bool is_working_ HOCKET_GUARDED_BY(mutex_) = false;
  PlanInput plan_input_ HOCKET_GUARDED_BY(mutex_);
  bool stops_ HOCKET_GUARDED_BY(mutex_) = false;
  int num_handed_out_ HOCKET_GUARDED_BY(mutex_) = 0, num_moved_ HOCKET_GUARDED_BY(mutex_) = 0;
  ExpertMoveStats stats_ HOCKET_GUARDED_BY(mutex_);  // without those of the loader
  EpochLoading epoch_ HOCKET_GUARDED_BY(mutex_);
  Thread mover_, takeover_;
};

}  // namespace hocket
