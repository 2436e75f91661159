// Ranks that are not equal, in virtual time: some compute more slowly, or have more than their
// share of the experts' rows. A plan is played by a recurrence, without threads and messages, so
// that any number of ranks may be many. If all are equal, it is that of Predictor.
//
//   out link of a rank   all its peers get their messages together, at the end of what it sends
//   in link              begins when the first peer sends; ends when the last one has sent, or when
//                        it has carried what is sent here
//
// Thread: any; pure. For tests and benches.
#pragma once

#include <vector>

#include "compute/overlap/search.h"
#include "compute/overlap/step_report.h"

namespace hocket {

// Ranks that are like each other.
struct AlikeRanks {
  int count = 1;
  double slowness = 1;  // factor of all times of their cores
  double load = 1;      // the rows of their experts, as a multiple of the mean over all ranks
};

class UnequalRanks {
 public:
  // even: the times of ranks that are all equal; it outlives this. The ranks are two or more; the
  // mean of their loads is 1, and each is below the number of ranks.
  UnequalRanks(const StageModel& even, const LayerCounts& layers, std::vector<AlikeRanks> ranks);

  // Returns the time of the slowest rank, with other_us of the layers.
  double step_us(const Plan& plan, const Bucket& bucket) const;
  // Returns the reports of the ranks on a step of such a time, one of each kind.
  std::vector<StepReport> reports(const Plan& plan, const Bucket& bucket, double step_us) const;
  // Returns the times of such ranks; those of transfers are what they send.
  StageTimes times_of(const AlikeRanks& ranks, const Bucket& bucket) const;
  // Returns the load of each rank.
  std::vector<double> loads() const;
  std::span<const AlikeRanks> ranks() const { return ranks_; }

 private:
  class Playing;  // a step that is played

  const StageModel& even_;
  const LayerCounts layers_;
  const std::vector<AlikeRanks> ranks_;
  int num_ranks_ = 0;
};

}  // namespace hocket
