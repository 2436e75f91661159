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

// A transfer in one message occupies the link for busy_us; its last byte arrives latency_us after
// that. In p parts or waves the half occupies the link for `spread` times as long in all, because a
// row may travel to a rank in several of the messages; each message has an equal share of that
// time.
struct TransferTime {
  double busy_us = 0;
  double latency_us = 0;
  double spread = 1;

  double busy_in(int num_waves) const { return num_waves > 1 ? busy_us * spread : busy_us; }
};

struct StageTimes {
  // Times on the rank's own cores. A start is packing and pushing; a wait is unpacking, without the
  // waiting itself.
  std::array<double, kNumOps> compute{};
  TransferTime dispatch, combine;
  double part_us = 0;  // on the cores, for each part beyond the first
  double wave_us = 0;  // on the cores, for each wave beyond the first of its part
  // Prefill: the first wave of a part has the gate and up products of all its waves, two thirds of
  // the experts' time.
  bool up_first = false;

  double& of(Op op) { return compute[static_cast<size_t>(op)]; }
  double of(Op op) const { return compute[static_cast<size_t>(op)]; }
};

// The number of messages to each rank for the rows of a half: they leave in `parts`, and each part
// is sent back in `waves`.
struct Grain {
  int parts = 1, waves = 1;

  int num_waves() const { return parts * waves; }
  bool operator==(const Grain&) const = default;
};

// Returns the time of one of `pieces` pieces; the first one also has the remainder.
constexpr int64_t time_of_piece(int64_t whole, int index, int pieces) {
  return index == 0 ? whole - whole / pieces * (pieces - 1) : whole / pieces;
}

// Returns the part of the experts' time that a wave takes; waves are counted over all parts.
constexpr int64_t time_of_wave(int64_t experts, const Grain& grain, int wave, bool up_first) {
  const int64_t part = time_of_piece(experts, wave / grain.waves, grain.parts);
  if (grain.waves == 1) return part;
  const int64_t first = up_first ? part / 3 * 2 : 0;
  return time_of_piece(part - first, wave % grain.waves, grain.waves) +
         (wave % grain.waves == 0 ? first : 0);
}

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
