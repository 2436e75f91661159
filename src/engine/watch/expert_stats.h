// Which experts the rows computed in this process chose, layer by layer: counted while somebody
// asks, and else one look at a number a pass.
//
//   start() -> each pass: open() .. the gate counts .. note() once committed -> stop() -> take()
//
// What a lost rank spoilt is never noted, nor is a pass that began before start() or is committed
// after stop(). The ranks of this process note into the same record.
// Source: SGLang's expert distribution recorder.   Thread: any, but where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/moe/placement.h"
#include "compute/tensor/view.h"

namespace hocket {

// stat: sums. per_pass: sums, and each of the newest passes.
enum class ExpertRecordMode : uint8_t { stat, per_pass };

// What one pass of one rank counts; used again and again.
struct ExpertPass {
  uint32_t record = 0;  // the record that it is counted for; 0: none
  int rank = 0;
  uint64_t step = 0;  // as the ranks agreed; 0 where there is one rank
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
  uint64_t num_steps = 0;        // of ranks with rows; two ranks that compute in one step are two
  uint64_t num_tokens = 0;       // rows of these; each chose k experts in every MoE layer
  std::vector<uint64_t> counts;  // [layers, experts] rows that chose it
  std::vector<uint64_t> rank_counts;  // [layers, ranks] the same by where experts are
  // per_pass: a ring, of which pass(0) is the oldest that is left.
  std::vector<Pass> passes;           // [buffer_size]
  std::vector<uint32_t> pass_counts;  // [buffer_size, layers, experts]

  int num_kept() const;
  const Pass& pass(int i) const { return passes[slot(i)]; }
  std::span<const uint32_t> counts_of_pass(int i) const;  // [layers, experts]

 private:
  size_t slot(int i) const;
};

// How even loads are: mean / largest, 1 at best. Nothing where there is no load.
std::optional<double> balancedness(std::span<const uint64_t> loads);
// The mean over layers that have loads. Shapes: loads [layers, columns].
std::optional<double> balancedness(std::span<const uint64_t> loads, int columns);

// For metrics.
struct ExpertBalance {
  double balancedness = 0;            // over ranks, of the record so far; 0: nothing is recorded
  std::vector<uint64_t> rank_tokens;  // [ranks] choices of experts there, in all records so far
};

class ExpertStats {
 public:
  struct Start {
    ExpertRecordMode mode = ExpertRecordMode::stat;
    int buffer_size = 0;  // per_pass: passes that are kept; 0: kDefaultPasses, or as many as fit
  };
  static constexpr int kDefaultPasses = 1000;
  // Counts of all passes that are kept: 16 MiB here, and what a reader can take in one answer.
  static constexpr int64_t kMostPassCounts = 1 << 22;

  // rank: the first of this process.
  ExpertStats(int num_layers, const Placement& placement, int rank);

  const Placement& placement() const { return placement_; }
  int rank() const { return rank_; }
  size_t num_counts() const { return num_counts_; }  // layers * experts

  // Begins a new record; one that was not taken is forgotten. Takes all memory there will be.
  // Errors: invalid_request (buffer_size), naming the largest.
  Result<void> start(const Start& how);
  // Errors: invalid_request, where nothing is being recorded.
  Result<void> stop();
  // What was recorded, which begins anew if it was not stopped. Errors: invalid_request, where
  // nothing was.
  Result<ExpertRecord> take();
  // The sums of the record so far, which goes on; none where there is none.
  std::optional<ExpertRecord> look() const;
  bool recording() const { return record_.load(std::memory_order_relaxed) != 0; }
  ExpertBalance balance() const;

  // Before a pass: where the gate counts, zeros; empty where nobody asks. pass.counts has
  // num_counts() elements. Thread: that of the pass. Allocates nothing.
  View<uint32_t> open(ExpertPass& pass) const;
  // After it was committed. Thread: engine. Allocates nothing.
  void note(const ExpertPass& pass);

 private:
  ExpertRecord empty_record(const Start& how) const;

  const Placement placement_;
  const int num_layers_, rank_;
  const size_t num_counts_;

  std::mutex asking_;  // of start, stop and take: one at a time
  Start how_;          // under asking_
  uint32_t last_ = 0;  // likewise

  std::atomic<uint32_t> record_{0};  // the number of the one that is being made; 0: none
  mutable std::mutex mutex_;
  std::optional<ExpertRecord> kept_;   // under mutex_
  std::vector<uint64_t> rank_tokens_;  // likewise
};

}  // namespace hocket
