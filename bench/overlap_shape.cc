#include "bench/overlap_shape.h"

#include <array>
#include <cmath>

namespace hocket {
namespace {

constexpr double kElement = 2;       // bf16
constexpr double kCopyShare = 0.25;  // rows are gathered and written at this share of the read rate
constexpr int kContext = 1024;       // keys of a sequence that decodes
constexpr int kFreeRows = 64;        // the free shape scales the times of this number of rows
constexpr double kRead = 100e9, kMultiply = 1.6e12, kBeginUs = 5;  // 16 cores with AVX-512

constexpr std::array kOverlapShapes = {
    // Qwen3-30B-A3B.
    OverlapShape{"qwen3-30b", 2048, 0, 48, 32, 4, 128, 128, 8, 768, 0, 6144, kRead, kMultiply,
                 kBeginUs, false},
    // A model with shared experts and a dense head layer.
    OverlapShape{"shared-16b", 2048, 1, 26, 16, 16, 128, 64, 6, 1408, 2816, 10944, kRead, kMultiply,
                 kBeginUs, false},
    // The same as the first, except that splitting costs nothing.
    OverlapShape{"free", 2048, 0, 48, 32, 4, 128, 128, 8, 768, 0, 6144, kRead, kMultiply, 0, true},
};

double us(double seconds) {
  return seconds * 1e6;
}

}  // namespace

LayerCounts OverlapShape::layers() const {
  return {.num_dense = num_dense, .num_moe = num_moe, .has_shared = shared_intermediate > 0};
}

std::span<const OverlapShape> overlap_shapes() {
  return kOverlapShapes;
}

Bucket ShapeTimes::bucket_of(Phase phase, int rows) {
  const int keys = phase == Phase::decode ? kContext : kOverlapPrompt / 2;
  return {.phase = phase, .rows = rows, .kv_tokens = int64_t{rows} * keys};
}

double ShapeTimes::op_us(double bytes, double operations) const {
  return shape_.launch_us +
         us(bytes / shape_.read_bytes_per_s + operations / shape_.operations_per_s);
}

double ShapeTimes::hit_experts(double rows) const {
  const double missed = 1 - static_cast<double>(shape_.top_k) / shape_.experts;
  return shape_.experts * (1 - std::pow(missed, rows));
}

// Returns the mean number of copies of a row that leave a rank, for dispatch and combine alike: one
// for each other rank that holds one of its experts.
double ShapeTimes::copies_away() const {
  const double away = static_cast<double>(ranks_ - 1) / ranks_;
  const double here = static_cast<double>(shape_.experts) / ranks_;
  double none_there = 1;  // C(E - E/R, k) / C(E, k)
  for (int i = 0; i < shape_.top_k; ++i)
    none_there *= (shape_.experts - here - i) / (shape_.experts - i);
  return ranks_ * (1 - none_there) * away;
}

StageTimes ShapeTimes::full(const Bucket& bucket) const {
  const OverlapShape& s = shape_;
  const double rows = bucket.rows, h = s.hidden, pairs = static_cast<double>(bucket.kv_tokens);
  const double attended = s.heads * s.head_dim, kv_columns = 2.0 * s.kv_heads * s.head_dim;
  const double keys = bucket.phase == Phase::decode ? pairs : rows;  // a prompt's are read once
  const auto product = [&](double columns, double of) {  // rows [*, columns] by [columns, of]
    return op_us(columns * of * kElement, 2 * rows * columns * of);
  };
  const auto mlp = [&](double intermediate) { return product(h, 3 * intermediate); };
  const auto copy = [&](double copies) {
    return op_us(rows * copies * h * kElement / kCopyShare, 0);
  };

  StageTimes t;
  t.of(Op::attn_in) = product(h, attended + kv_columns);
  t.of(Op::attn_core) =
      product(attended, h) + op_us(keys * kv_columns * kElement, 4 * pairs * attended);
  t.of(Op::mlp) = mlp(s.dense_intermediate);
  t.of(Op::gate) = product(h, s.experts);
  t.of(Op::shared) = s.shared_intermediate > 0 ? mlp(s.shared_intermediate) : 0;
  const double expert = 3 * h * s.intermediate;
  const double expert_bytes = hit_experts(rows * ranks_) / ranks_ * expert * kElement;
  t.of(Op::experts) = op_us(expert_bytes, 2 * rows * s.top_k * expert);
  // dispatch_start packs a copy of the row for each message, combine_wait sums the copies.
  const double copies = copies_away();
  t.dispatch = t.combine = {.busy_us = us(rows * copies * h * kElement * 8 / (link_.gbit * 1e9)),
                            .latency_us = s.free_split ? 0 : link_.latency_us,
                            .spread = spread(bucket.phase)};
  t.of(Op::dispatch_start) = copy(copies);
  t.of(Op::dispatch_wait) = op_us(0, 0);
  t.of(Op::combine_start) = op_us(0, 0);
  t.of(Op::combine_wait) = copy(copies);
  // Prefill cuts a half into parts by rows, and each part reads the experts again, each wave their
  // down projections. Decode cuts it by experts, which are read once; in parts each takes a copy of
  // the row, so more copies are packed, and summed.
  const bool by_rows = bucket.phase == Phase::prefill;
  const double again_us = by_rows ? op_us(expert_bytes, 0) : 0;
  t.part_us = 4 * s.launch_us + again_us;
  t.wave_us = 2 * s.launch_us + again_us / 3;
  t.spread_us = 2 * (copy(spread(bucket.phase) * copies) - copy(copies));
  t.up_first = by_rows;
  return t;
}

// Returns how many times as many copies leave in several parts: in decode one for each expert.
double ShapeTimes::spread(Phase phase) const {
  if (phase == Phase::prefill || shape_.free_split) return 1;
  return shape_.top_k * static_cast<double>(ranks_ - 1) / ranks_ / copies_away();
}

StageTimes ShapeTimes::at(const Bucket& bucket) const {
  if (!shape_.free_split) return full(bucket);
  StageTimes t = full(bucket_of(bucket.phase, kFreeRows));
  const double share = static_cast<double>(bucket.rows) / kFreeRows;
  for (double& each : t.compute) each *= share;
  t.dispatch.busy_us *= share, t.combine.busy_us *= share;
  t.part_us = t.wave_us = 0;
  return t;
}

}  // namespace hocket
