// Estimates the times of a layer's operations before any was measured: from the bytes that they
// read, the operations that they compute, and the bytes that travel. It assumes that experts are
// chosen evenly and that all ranks have equal work. It is the planner's prior, and the source of
// `hocket plan --overlap`.
//
// E experts, k per row, R ranks:
//   prompt row  is sent to R (1 - C(E - E/R, k) / C(E, k)) ranks, each of which returns one sum
//               node (compute/moe/combine_nodes.h) that has one of its experts, mostly one a rank
//   decode row  the same, in several parts it is sent k times and returned k times
// Of all rows, (R - 1) / R travel. Pure. Thread: any.
#pragma once

#include "compute/overlap/stage_times.h"
#include "engine/plan/cost.h"

namespace hocket {

// The link between two ranks, each way.
struct StageLink {
  double gbit_per_s = 0;  // 0: the ranks share memory
  double latency_us = 0;
  double core_s_per_gb = 0;  // time of the rank's own cores for 1 GB out and 1 GB in
};
// The time of a core that gives its bytes to the kernel's TCP: 1.1 to 1.8 s between namespaces.
inline constexpr double kTcpCoreSecondsPerGb = 1.2;
// A guess of the link between hosts, where no flag says more.
inline constexpr StageLink kGuessedLink{
    .gbit_per_s = 10, .latency_us = 30, .core_s_per_gb = kTcpCoreSecondsPerGb};

struct StageEstimateInput {
  MachineSpeed speed;  // speed of one rank
  int num_ranks = 1;
  StageLink link;
};
// Fixed times: for all workers to begin and end an operation; for a message to be passed to the
// transport and noticed.
inline constexpr double kLaunchUs = 3, kMessageUs = 2;

// Bytes of one layer from a rank to all others (and as many back), without message headers.
struct StageBytes {
  double dispatch = 0, combine = 0;
};

class StageEstimate final : public StageModel {
 public:
  StageEstimate(const ModelChoice& choice, const ModelCost& cost, const StageEstimateInput& input);

  // Returns the times of a bucket. Prompts count as one chunk of one sequence. With one rank,
  // transfers take 0.
  StageTimes at(const Bucket& bucket) const override;
  // Returns the bytes of a bucket in one part, in which a row travels to a rank once.
  StageBytes bytes(const Bucket& bucket) const;
  // Returns the bytes of a bucket in several parts: a row of an answer then travels once for each
  // of its experts.
  StageBytes bytes_in_parts(const Bucket& bucket) const;
  // Returns the time of a step outside of its layers: that of the head.
  double other_us(const Bucket& bucket) const;
  LayerCounts layers(const Bucket& bucket) const;

 private:
  PassShape pass_of(const Bucket& bucket) const;
  double us(double bytes, const Operations& operations) const;
  // Returns the time of an operation of this size, over `layers` layers, in one of them: reading
  // the share `hit` of its weights, and computing its rows; without keys.
  double stage_us(const StageSize& size, double rows, int layers, double hit = 1) const;
  double experts_us(double rows) const;
  double copy_us(double bytes) const { return us(2 * bytes, {}); }  // read and written
  double moving_us(double bytes) const;                             // on the cores, out or in
  // Returns the probability that `size` experts are not all without a row.
  double probability_of_part(double size) const;
  TransferTime transfer(double bytes) const;
  // Adds attn_in and attn_core of a kind, by its number.
  void add_attention(const PassShape& pass, int number, StageTimes& times) const;
  void add_exchange(const Bucket& bucket, StageTimes& times) const;

  ModelCost cost_;
  ModelConfig model_;
  StageEstimateInput input_;
  MlaForm prompt_form_ = MlaForm::expanded;
  double head_bytes_ = 0;
  LayerCounts layers_;
  double fullest_share_ = 1;  // part of the experts that the rank with most of them holds
  double results_a_row_ = 0;  // the mean number of sums that are returned for a row
  // Bytes of a row: to its experts, from them, and its lists in a dispatch of one part.
  double sent_row_ = 0, result_row_ = 0, lists_ = 0;
};

// Returns how many keys cost as much as the fixed part of a row of this bucket, in computing and on
// the link (HalfPacking::keys_per_row). In [1, 1e6].
double keys_per_row(const StageModel& model, const Bucket& bucket, const LayerCounts& layers = {});

}  // namespace hocket
