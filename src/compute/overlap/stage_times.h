// The times of a layer's operations, as the planner sees them. All times are microseconds of one
// layer and one half.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "compute/overlap/op.h"

namespace hocket {

enum class Phase : uint8_t { prefill, decode };  // mixed steps are prefill
inline constexpr int kNumPhases = 2;
constexpr size_t index_of(Phase phase) {
  return static_cast<size_t>(phase);
}
constexpr std::string_view phase_name(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

// The size of a step, on the rank that has most to do.
struct Bucket {
  Phase phase = Phase::decode;
  int rows = 0;
  // The keys that each row attends to, summed over rows: the work of attention. Halves divide it as
  // they divide rows.
  int64_t kv_tokens = 0;

  auto operator<=>(const Bucket&) const = default;
};

// The number of messages to each rank for the rows of a half: they leave in `parts`, and each part
// is sent back in `waves`.
struct Grain {
  int parts = 1, waves = 1;

  int num_waves() const { return parts * waves; }
  bool operator==(const Grain&) const = default;
};

// A transfer in one message occupies the link for busy_us; its last byte arrives latency_us after
// that. `spread` is the mean number of a row's experts on a rank that has one of them. In several
// parts a row travels for each of these: the half occupies the link for `spread` times as long in
// all, and each message has an equal share of that time. In waves of one part a row travels once,
// and its sum leaves with the wave of the last of these experts:
//
//   experts computed       1/4    1/2    3/4    all
//   sums sent, spread 2    1/16   1/4    9/16   all
//   sums sent, spread 1    1/4    1/2    3/4    all        as in a step with prompts
struct TransferTime {
  double busy_us = 0;
  double latency_us = 0;
  double spread = 1;

  double busy_in(const Grain& grain) const { return grain.parts > 1 ? busy_us * spread : busy_us; }
  // Returns the share of a combine that its first `num` waves carry.
  double share_of_waves(int num, const Grain& grain) const {
    const double share = static_cast<double>(num) / grain.num_waves();
    return grain.parts > 1 || spread == 1 ? share : std::pow(share, spread);
  }
};

// The kind of attention of each layer of a model.
class LayerKinds {
 public:
  static constexpr size_t kMaxStored = 256;

  constexpr LayerKinds() = default;  // one kind
  // Layer i is of the kind layers[i]. Deeper layers repeat these, or the first kMaxStored of them.
  // Precondition: `layers` is not empty.
  explicit constexpr LayerKinds(std::span<const AttentionKind> layers)
      : num_layers_of_{}, num_kinds_(0) {
    layers = layers.first(std::min(layers.size(), kMaxStored));
    num_stored_ = static_cast<int>(layers.size());
    std::array<uint8_t, kNumAttentionKinds> numbers{};
    for (size_t kind = 0; kind < kNumAttentionKinds; ++kind)
      if (std::ranges::count(layers, static_cast<AttentionKind>(kind)) > 0) {
        numbers[kind] = static_cast<uint8_t>(num_kinds_);
        kinds_[static_cast<size_t>(num_kinds_++)] = static_cast<AttentionKind>(kind);
      }
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      numbers_[layer] = numbers[static_cast<size_t>(layers[layer])];
      ++num_layers_of_[numbers_[layer]];
    }
  }

  // Returns how many kinds there are; they are numbered in the sequence of AttentionKind.
  constexpr int num() const { return num_kinds_; }
  constexpr size_t num_stages() const { return kNumOps + 2 * static_cast<size_t>(num_kinds_ - 1); }
  constexpr AttentionKind kind(int number) const { return kinds_[static_cast<size_t>(number)]; }
  // Returns the number of a layer's kind.
  constexpr int of(int layer) const { return numbers_[static_cast<size_t>(layer % num_stored_)]; }
  // Returns how many of the first layers are of a kind.
  constexpr int count(int number, int num_layers) const {
    const int repeats = num_layers / num_stored_;
    int count = repeats * num_layers_of_[static_cast<size_t>(number)];
    for (int layer = repeats * num_stored_; layer < num_layers; ++layer)
      if (of(layer) == number) ++count;
    return count;
  }

 private:
  std::array<AttentionKind, kNumAttentionKinds> kinds_{};
  std::array<uint8_t, kMaxStored> numbers_{};
  std::array<int, kNumAttentionKinds> num_layers_of_ = {1};  // among those stored
  int num_stored_ = 1, num_kinds_ = 1;
};

// The layers of a model, and the time of a step outside them.
struct LayerCounts {
  int num_dense = 0;  // before the first MoE layer
  int num_moe = 0;
  bool has_shared = false;
  double other_us = 0;  // embedding, head, sampling, the engine's own work
  LayerKinds kinds = {};

  constexpr int num_layers() const { return num_dense + num_moe; }
  // Returns how many layers have this stage; of shared experts it does not ask has_shared.
  constexpr int count(const Stage& stage) const {
    if (!is_attention(stage.op)) return stage.op == Op::mlp ? num_dense : num_moe;
    return kinds.count(stage.kind, num_layers());
  }
};

struct StageTimes {
  // Times on the rank's own cores, by index_of(Stage). A start is packing and pushing; a wait is
  // unpacking, without the waiting itself.
  std::array<double, kNumStages> compute{};
  TransferTime dispatch, combine;
  double part_us = 0;  // on the cores, for each part beyond the first
  double wave_us = 0;  // on the cores, for each wave beyond the first of its part
  // On the cores, once if there are several parts: the time of the copies of rows by which
  // TransferTime::spread is above 1. A forecast counts moving them, a measured time all that they
  // cost. It is the same in any number of parts.
  double spread_us = 0;
  // Prefill: the first wave of a part has the gate and up products of all its waves, two thirds of
  // the experts' time.
  bool up_first = false;

  // `kind` is a number of LayerKinds.
  double& of(Op op, int kind = 0) { return compute[index_of({op, kind})]; }
  double of(Op op, int kind = 0) const { return compute[index_of({op, kind})]; }
  // Returns the cores' time that a wave adds to the experts' own; waves are counted over all parts.
  double added_us(const Grain& grain, int wave) const {
    if (wave == 0) return 0;
    if (wave % grain.waves != 0) return wave_us;
    return part_us + (wave == grain.waves ? spread_us : 0);  // once, with the second part
  }
  // Returns the mean over all layers of attn_in and attn_core together.
  double mean_attention(const LayerCounts& layers) const {
    if (layers.kinds.num() == 1) return of(Op::attn_in) + of(Op::attn_core);
    double sum = 0;
    for (int kind = 0; kind < layers.kinds.num(); ++kind)
      sum += layers.count({Op::attn_in, kind}) * (of(Op::attn_in, kind) + of(Op::attn_core, kind));
    return sum / std::max(layers.num_layers(), 1);
  }
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

// A source of stage times: the fit of the running server, a forecast, or a table of a bench. Pure.
class StageModel {
 public:
  virtual ~StageModel() = default;
  // Returns the times of a half, or of a whole batch, of this size. The cost of splitting a batch
  // is the sum of at() over its halves, minus at() of the whole.
  virtual StageTimes at(const Bucket& bucket) const = 0;
};

}  // namespace hocket
