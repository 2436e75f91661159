// The times of a layer's operations, as the planner sees them. All times are microseconds of one
// layer and one half.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "compute/overlap/op.h"

namespace hocket {

enum class Phase : uint8_t { prefill, decode };  // mixed steps are prefill
inline constexpr int kNumPhases = 2;

// The size of a step, on the rank that has most to do.
struct Bucket {
  Phase phase = Phase::decode;
  int rows = 0;
  // The keys that each row attends to, summed over rows: the work of attention. Halves divide it as
  // they divide rows.
  int64_t kv_tokens = 0;

  auto operator<=>(const Bucket&) const = default;
};

// A transfer in one part occupies the link for busy_us; its last byte arrives latency_us after
// that. In p parts it is busy for `spread` times as long, each of them for 1 / p of it: in several
// parts a row may travel to a rank more than once.
struct TransferTime {
  double busy_us = 0;
  double latency_us = 0;
  double spread = 1;

  double busy_in(int parts) const { return parts > 1 ? busy_us * spread : busy_us; }
};

struct StageTimes {
  // Times on the rank's own cores. A start is packing and pushing; a wait is unpacking, without the
  // waiting itself.
  std::array<double, kNumOps> compute{};
  TransferTime dispatch, combine;
  double part_us = 0;  // on the cores, for each part beyond the first

  double& of(Op op) { return compute[static_cast<size_t>(op)]; }
  double of(Op op) const { return compute[static_cast<size_t>(op)]; }
};

// The layers of a model, and the time of a step outside them.
struct LayerCounts {
  int num_dense = 0;  // before the first MoE layer
  int num_moe = 0;
  bool has_shared = false;
  double other_us = 0;  // embedding, head, sampling, the engine's own work

  int num_layers() const { return num_dense + num_moe; }
};

// A source of stage times: the fit of the running server, a forecast, or a table of a bench. Pure.
class StageModel {
 public:
  virtual ~StageModel() = default;
  // Returns the times of a half, or of a whole batch, of this size. The cost of splitting a batch
  // is the sum of at() of its halves less at() of the whole.
  virtual StageTimes at(const Bucket& bucket) const = 0;
};

}  // namespace hocket
