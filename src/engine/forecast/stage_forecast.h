// What the operations of a layer would take, before any was measured: by the bytes that they read
// and what they compute, and by the bytes that travel. Experts are chosen evenly; all ranks have as
// much to do. The planner's first guess, and what `hocket plan --overlap` answers with.
// Of E experts, k a row, R ranks and G combine groups, a row of prompts goes to
// R (1 - C(E - E/R, k) / C(E, k)) ranks and comes back in as many sums as groups of G have one of
// its experts; a row of answers goes k times and comes back k times; (R - 1) / R of it all travels.
// Pure.   Thread: any.
#pragma once

#include "compute/overlap/stage_times.h"
#include "engine/forecast/cost.h"

namespace hocket {

// Between two ranks, each way.
struct StageLink {
  double gbit_per_s = 0;  // 0: the ranks share memory
  double latency_us = 0;
  double core_s_per_gb = 0;  // on the rank's own cores, for a GB out and a GB in
};
// A core that hands its bytes to the kernel's TCP: 1.1 to 1.8 s between namespaces.
inline constexpr double kTcpCoreSecondsPerGb = 1.2;

struct StageQuestion {
  MachineSpeed speed;  // of one rank
  int num_ranks = 1;
  StageLink link;
};
// Beside what is read, computed and moved: that all workers begin and end an operation; that a
// message is handed over, and noticed where it comes.
inline constexpr double kLaunchUs = 3, kMessageUs = 2;

// Of a layer, out of a rank and into it: to all others, without heads.
struct StageBytes {
  double dispatch = 0, combine = 0;
};

class StageForecast final : public StageModel {
 public:
  StageForecast(const ModelChoice& choice, const ModelCost& cost, const StageQuestion& question);

  // A bucket of prompts is taken for one chunk of one sequence. With one rank, transfers take 0.
  StageTimes at(const Bucket& bucket) const override;
  // Prompts travel counted, answers slotted.
  StageBytes bytes(const Bucket& bucket) const;
  // Of a step: the head.
  double beside_us(const Bucket& bucket) const;
  LayerCounts layers(const Bucket& bucket) const;

 private:
  PassShape pass_of(const Bucket& bucket) const;
  double us(double bytes, const Operations& operations) const;
  // Of one of `layers`: its weights, or what is hit of them, and its rows; without keys.
  double stage_us(Op op, double rows, int layers, double hit = 1) const;
  double experts_us(double rows) const;
  double copy_us(double bytes) const { return us(2 * bytes, {}); }  // read and written
  double moving_us(double bytes) const;                             // on the cores, out or in
  // Of `parts` equal parts of the experts, how many hold one of a row's.
  double parts_of_a_row(int parts) const;
  TransferTime transfer(double bytes) const;
  void add_exchange(const Bucket& bucket, StageTimes& times) const;

  ModelCost cost_;
  ModelConfig model_;
  StageQuestion question_;
  TokenRole prompt_role_ = TokenRole::prompt;
  double head_bytes_ = 0;
  int num_moe_ = 0, num_groups_ = 1;
  // Bytes of a row: to its experts, from them, and what a counted dispatch says of it.
  double sent_row_ = 0, result_row_ = 0, lists_ = 0;
};

// How many keys cost what a row of this bucket costs beside its keys, in computing and on the link:
// HalfPacking::keys_a_row. In [1, 1e6].
double keys_a_row(const StageModel& model, const Bucket& bucket);

}  // namespace hocket
