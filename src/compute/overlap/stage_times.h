// What the operations of a layer take, as the planner sees them. All times in microseconds of one
// layer and one half.
#pragma once

#include <array>
#include <cstdint>

#include "compute/overlap/op.h"

namespace hocket {

enum class Phase : uint8_t { prefill, decode };  // mixed steps are prefill
inline constexpr int kNumPhases = 2;

// How much a step has to do, on the rank that has most.
struct Bucket {
  Phase phase = Phase::decode;
  int rows = 0;
  // Keys that each row attends to, summed over rows: the work of attention, which halves share out
  // as they share rows.
  int64_t kv_tokens = 0;

  bool operator==(const Bucket&) const = default;
};

// A transfer occupies the link for busy_us; the last byte is there latency_us after that. Of a
// transfer in p parts each is busy for busy_us / p.
struct TransferTime {
  double busy_us = 0;
  double latency_us = 0;
};

struct StageTimes {
  // On the rank's own cores. Starts: packing and pushing; waits: unpacking, without waiting.
  std::array<double, kNumOps> compute{};
  TransferTime dispatch, combine;
  double part_us = 0;  // on the cores, for each part beyond the first

  double& of(Op op) { return compute[static_cast<size_t>(op)]; }
  double of(Op op) const { return compute[static_cast<size_t>(op)]; }
};

// Layers of a model, and what a step costs beside them.
struct LayerCounts {
  int num_dense = 0;  // before the first MoE layer
  int num_moe = 0;
  bool has_shared = false;
  double beside_us = 0;  // embedding, head, sampling, the engine's own work

  int num_layers() const { return num_dense + num_moe; }
};

// Who knows the times: fits of the running server, a forecast, a table of a bench. Pure.
class StageModel {
 public:
  virtual ~StageModel() = default;
  // Of a half, or a whole batch, of this size. Splitting costs what at() of two smaller ones costs
  // more than at() of the whole.
  virtual StageTimes at(const Bucket& bucket) const = 0;
};

}  // namespace hocket
