// The best plan for a bucket, among: none; single-batch (every order of one half, with parts); two
// halves in every order of the table, at several shares, with parts. Exact: as if all were
// predicted, though most are given up early. Pure.
#pragma once

#include <array>
#include <optional>
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

// Where the time of `none` and of the best two halves goes, for explanations.
struct SearchReason {
  Prediction none, two;
  double latency_us = 0;               // of a step without overlap, what is latency of transfers
  double experts_us = 0, attn_us = 0;  // of a layer and half of `two`
};

struct SearchAnswer {
  Candidate none, best;
  Candidate best_single, best_two;  // of their kind, allowed or not; step_us 0: there is none
  // None, all of one half, and embedded orders in even halves: few, and seldom far off.
  std::vector<Candidate> common;
  std::vector<Candidate> leaders;  // the best few, best first, each of another order; <= kLeaders
  double lower_bound_us = 0;       // of all that was searched
  double three_halves_us = 0;  // what three equal halves in turn would take; they are not played
  SearchReason reason;
  // Half a sentence, why it is the best: "two halves predicted -4 %: experts too small to cover
  // dispatch". Percent are of the time of none: what is gained.
  std::string why;

  static constexpr int kLeaders = 4;
};

SearchAnswer search(const SearchQuestion& question);

// Shares of the first half that are tried, of kWholeShare, the even one first.
inline constexpr std::array kSearchShares = {32, 30, 34, 28, 36, 26, 38, 24, 40, 20, 44, 16,
                                             48, 12, 52, 8,  56, 4,  60, 2,  62, 1,  63};
// The halves of a bucket that is cut so. Nothing if it cannot be cut in two.
std::optional<std::array<Bucket, 2>> halves_of(const Bucket& bucket, int share, int row_tile);
// What the plan takes, of the bucket as a whole.
Prediction predict_plan(const SearchQuestion& question, const Plan& plan);
double predict_step_us(const SearchQuestion& question, const Plan& plan);  // that alone, sooner
// Why two halves are worth no more than they are: "experts too small to cover dispatch".
std::string why_not_two(const SearchReason& reason);
// SearchAnswer::why, of the rest.
std::string explain(const SearchAnswer& answer, const OrderTable& orders);

// The same in pieces, for a server that has little time for it. Allocates at construction alone;
// leaves SearchAnswer::why empty.
class Searcher {
 public:
  explicit Searcher(const OrderTable& orders);  // outlives it

  // model and orders of the question outlive the search; orders are those of the constructor.
  void begin(const SearchQuestion& question);
  // Looks at about so many candidates. True: that was all.
  bool advance(int num_candidates);
  // Whole when advance() has returned true.
  const SearchAnswer& answer() const { return answer_; }

 private:
  void look_at_whole();
  bool next_halves();  // the next share and parts; false: that was all
  void consider(const Candidate& candidate, PlanKind kind);
  double limit_us() const;
  void finish();
  SearchQuestion question() const;

  const OrderTable& orders_;
  std::vector<int> one_half_, two_halves_;  // orders of the table
  const StageModel* model_ = nullptr;
  LayerCounts layers_;
  Bucket bucket_;
  int row_tile_ = 1, most_parts_ = kMaxParts;
  bool single_batch_ = true, two_batch_ = true;
  // Where it is.
  size_t share_ = 0, order_ = 0;
  int parts_ = 0;
  std::optional<Predictor> predictor_;
  SearchAnswer answer_;
};

}  // namespace hocket
