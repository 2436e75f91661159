// The best plan for a bucket, among: none; single-batch (shared expert under dispatch or under
// combine, parts); two halves in every order of the table, at several shares, with parts. Pure.
#pragma once

#include <string>
#include <vector>

#include "compute/overlap/plan.h"
#include "compute/overlap/prediction.h"

namespace hocket {

struct SearchQuestion {
  const StageModel& model;
  const OrderTable& orders;
  LayerCounts layers;
  Bucket bucket;
  int row_tile = 1;                            // shares are cut on multiples of so many rows
  bool single_batch = true, two_batch = true;  // what may be chosen beside none
  int most_parts = kMaxParts;                  // 1: rows travel in one message
};

struct Candidate {
  Plan plan;
  double step_us = 0;
};

struct SearchAnswer {
  Candidate none, best;
  Candidate best_single, best_two;  // of their kind, allowed or not; step_us 0: there is none
  std::vector<Candidate> leaders;   // the best few, best first; at most kLeaders
  double lower_bound_us = 0;
  double three_halves_us = 0;  // what three equal halves in turn would take; they are not played
  // Half a sentence, why it is the best: "two halves predicted -4 %: experts too small to cover
  // dispatch".
  std::string why;

  static constexpr int kLeaders = 4;
};

SearchAnswer search(const SearchQuestion& question);

}  // namespace hocket
