// Counts which experts the rows computed in this process chose, layer by layer. While no record
// runs, a pass only checks one number.
//
//   start() -> each pass: open() .. the gate counts .. note() once committed -> stop() -> take()
//
// A pass that failed with a lost rank is never noted, nor is a pass that began before start() or is
// committed after stop(). The ranks of this process note into the same record.
// Source: SGLang's expert distribution recorder. Thread: any, except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "compute/moe/placement.h"
#include "compute/tensor/view.h"

namespace hocket {

// stat: sums only. per_pass: sums, and each of the newest passes.
enum class ExpertRecordMode : uint8_t { stat, per_pass };

// The counts of one pass of one rank; reused for every pass.
struct ExpertPass {
  uint32_t record = 0;  // the record that it is counted for; 0: none
  int rank = 0;
  uint64_t step = 0;  // number that the ranks agreed on; 0 if there is one rank
  int num_tokens = 0;
  std::vector<uint32_t> counts;  // [layers, experts]
};

struct ExpertRecord {
  struct Pass {
    int rank = 0;
    uint64_t step = 0;
    int num_tokens = 0;
  };

  ExpertRecordMode mode = ExpertRecordMode::stat;
  int num_layers = 0, num_experts = 0;  // layers without experts have counts of 0
  uint64_t num_steps = 0;        // steps of ranks with rows; two ranks in one step count as two
  uint64_t num_tokens = 0;       // rows of these; each chose k experts in every MoE layer
  std::vector<uint64_t> counts;  // [layers, experts] number of rows that chose the expert
  std::vector<uint64_t> rank_counts;  // [layers, ranks] the same, summed over each rank's experts;
                                      // those of an expert with replicas in turn
  // These are a ring, used with per_pass; pass(0) is the oldest that is left.
  std::vector<Pass> passes;           // [buffer_size]
  std::vector<uint32_t> pass_counts;  // [buffer_size, layers, experts]

  int num_kept() const;
  const Pass& pass(int i) const { return passes[slot(i)]; }
  std::span<const uint32_t> counts_of_pass(int i) const;  // [layers, experts]

 private:
  size_t slot(int i) const;
};

// Returns how even loads are: mean / largest, 1 at best. nullopt if all are 0.
std::optional<double> balancedness(std::span<const uint64_t> loads);
// Returns the mean over layers that have loads. Shape of loads: [layers, columns].
std::optional<double> balancedness(std::span<const uint64_t> loads, int columns);

// Numbers for metrics.
struct ExpertBalance {
  double balancedness = 0;            // over ranks, of the running record; 0: none runs
  std::vector<uint64_t> rank_tokens;  // [ranks] choices of experts there, in all records so far
};

class ExpertStats {
 public:
  struct Start {
    ExpertRecordMode mode = ExpertRecordMode::stat;
    int buffer_size = 0;  // per_pass: passes kept; 0: kDefaultPasses, or as many as fit
  };
  static constexpr int kDefaultPasses = 1000;
  // Limit of counts of all passes that are kept: 16 MiB here, and readable in one answer.
  static constexpr int64_t kMaxPassCounts = 1 << 22;

  // `rank` is the first rank of this process.
  ExpertStats(int num_layers, const Placements& placement, int rank);

  Placements placement() const;
  // Sets the new placement of a layer.
  void place(int layer, Placement placement);
  // Makes open() count every pass, also while no record runs, for the caller's own sums. Called
  // before the first pass.
  void count_always() { always_ = true; }
  int rank() const { return rank_; }
  size_t num_counts() const { return num_counts_; }  // layers * experts

  // Begins a new record and allocates all its memory; a record that was not taken is dropped.
  // Errors: invalid_request (buffer_size), naming the largest.
  Result<void> start(const Start& how);
  // Ends the record. Errors: invalid_request if none runs.
  Result<void> stop();
  // Returns the record; if it still runs, a new one begins. Errors: invalid_request if there is
  // none.
  Result<ExpertRecord> take();
  // Returns the sums of the record so far, which continues; nullopt if there is none.
  std::optional<ExpertRecord> snapshot() const;
  bool recording() const { return record_.load(std::memory_order_relaxed) != 0; }
  ExpertBalance balance() const;

  // Called before a pass. Returns the zeroed counters for the gate; empty if no record runs, unless
  // count_always() was called.
  // pass.counts has num_counts() elements. Thread: that of the pass. Allocates nothing.
  View<uint32_t> open(ExpertPass& pass) const;
  // Adds a pass after its commit. Thread: engine. Allocates nothing.
  void note(const ExpertPass& pass);

 private:
  ExpertRecord empty_record(const Start& how) const;

  const int num_layers_, num_experts_, num_ranks_, rank_;
  const size_t num_counts_;

  Mutex asking_;  // lets one of start, stop and take run at a time
  Start how_ HOCKET_GUARDED_BY(asking_);
  uint32_t last_ HOCKET_GUARDED_BY(asking_) = 0;

  bool always_ = false;
  std::atomic<uint32_t> record_{0};  // number of the running record; 0: none
  mutable Mutex mutex_;
  Placements placement_ HOCKET_GUARDED_BY(mutex_);
  std::optional<ExpertRecord> recorded_ HOCKET_GUARDED_BY(mutex_);
  std::vector<uint64_t> rank_tokens_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
