// Stage times by formula, for virtual time: a model's shape on a rank of given speed, behind a link
// of given rate. Nothing is measured, so results are the same on every machine.
//
//   an operation   launch + bytes read / read rate + operations / multiply rate
//   experts        read if a row of any rank hits them: E (1 - (1 - k/E)^rows), spread evenly
//   a transfer     bytes of the rows that leave a rank / link rate, and a latency
//
// Times of reading and multiplying add up, as measured (engine/plan/cost.h). So halving a
// decode batch reads the experts twice, while prefill loses little; the free shape loses nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compute/overlap/stage_times.h"

namespace hocket {

inline constexpr int kOverlapPrompt = 512;  // tokens of a prompt, in virtual and in real time

struct OverlapShape {
  std::string_view name;
  int hidden, num_dense, num_moe;
  int heads, kv_heads, head_dim;
  int experts, top_k, intermediate;
  int shared_intermediate;  // width of all shared experts together; 0: none
  int dense_intermediate;
  // Bytes and operations a second of a rank, and the time to begin an operation.
  double read_bytes_per_s, operations_per_s, launch_us;
  bool free_split;  // all times in proportion to rows, no latency: halving costs nothing

  LayerCounts layers() const;
};
// Returns the shapes that are played; docs/performance.md describes them.
std::span<const OverlapShape> overlap_shapes();

struct OverlapLink {
  double gbit = 1, latency_us = 20;
};

class ShapeTimes final : public StageModel {
 public:
  ShapeTimes(const OverlapShape& shape, int ranks, OverlapLink link)
      : shape_(shape), ranks_(ranks), link_(link) {}
  StageTimes at(const Bucket& bucket) const override;
  // Returns a batch of `rows`: decode rows with 1,024 keys each, or prompts of 512 tokens.
  static Bucket bucket_of(Phase phase, int rows);

 private:
  StageTimes full(const Bucket& bucket) const;
  double op_us(double bytes, double operations) const;
  double hit_experts(double rows) const;
  double copies_away() const;
  double spread(Phase phase) const;

  const OverlapShape& shape_;
  const int ranks_;
  const OverlapLink link_;
};

}  // namespace hocket
