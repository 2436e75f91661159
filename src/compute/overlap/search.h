// Finds the best plan for a bucket among: none; single-batch (every order of one half, with parts);
// two halves in every order of the table, at several shares, with parts. The result is exact: the
// same as if all were predicted, though most are given up early. Pure.
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
  int row_tile = 1;  // the cut is moved to a multiple of this number of rows
  bool single_batch = true, two_batch = true;  // the kinds that may be chosen besides none
  int most_parts = kMaxParts;                  // 1: rows travel in one message
};

struct Candidate {
  Plan plan;
  double step_us = 0;
};

// The times of `none` and of the best plan of two halves, for explanations.
struct SearchReason {
  Prediction none, two;
  double latency_us = 0;               // latency of all transfers of a step without overlap
  double experts_us = 0, attn_us = 0;  // one layer of the second half of `two`
};

struct SearchAnswer {
  Candidate none, best;
  // The best of each kind, allowed or not; step_us 0: there is none.
  Candidate best_single, best_two;
  // The common plans: none, all of one half, and embedded orders in even halves. They are few, and
  // seldom much slower than the best.
  std::vector<Candidate> common;
  std::vector<Candidate> leaders;  // the best kLeaders, each with another order, the best first
  double lower_bound_us = 0;       // no plan that was searched is faster
  double three_halves_us = 0;      // predicted for three equal halves in turn, which are not played
  SearchReason reason;
  // Says why `best` is the best: "two halves predicted -4 %: experts too small to cover dispatch".
  // Percents are gains as a fraction of the time of none.
  std::string why;

  static constexpr int kLeaders = 4;
};

SearchAnswer search(const SearchQuestion& question);

// The shares of the first half that are tried, in 1 / kWholeShare, the even one first.
inline constexpr std::array kSearchShares = {32, 30, 34, 28, 36, 26, 38, 24, 40, 20, 44, 16,
                                             48, 12, 52, 8,  56, 4,  60, 2,  62, 1,  63};
// Returns the halves that the bucket is cut into by `share`; nothing if it cannot be cut in two.
std::optional<std::array<Bucket, 2>> halves_of(const Bucket& bucket, int share, int row_tile);
// Predicts the plan for question.bucket.
Prediction predict_plan(const SearchQuestion& question, const Plan& plan);
// The step time alone, which is faster.
double predict_step_us(const SearchQuestion& question, const Plan& plan);
// Returns why two halves do not gain more: "experts too small to cover dispatch".
std::string why_not_two(const SearchReason& reason);
// Returns SearchAnswer::why, from the other members.
std::string explain(const SearchAnswer& answer, const OrderTable& orders);

// Does the same search in pieces, for a server that has little time for it. Allocates only at
// construction; leaves SearchAnswer::why empty.
class Searcher {
 public:
  explicit Searcher(const OrderTable& orders);  // outlives it

  // `model` and `orders` of the question outlive the search; `orders` is that of the constructor.
  void begin(const SearchQuestion& question);
  // Looks at about num_candidates plans. Returns true when the search is finished.
  bool advance(int num_candidates);
  // The answer is complete when advance() has returned true.
  const SearchAnswer& answer() const { return answer_; }

 private:
  void look_at_whole();
  bool next_halves();  // goes to the next share and parts; false: there are none
  void consider(const Candidate& candidate, PlanKind kind);
  double limit_us() const;
  void finish();
  SearchQuestion question() const;

  const OrderTable& orders_;
  std::vector<int> one_half_, two_halves_;  // indices in the table, by number of halves
  const StageModel* model_ = nullptr;
  LayerCounts layers_;
  Bucket bucket_;
  int row_tile_ = 1, most_parts_ = kMaxParts;
  bool single_batch_ = true, two_batch_ = true;
  // The next candidate to look at.
  size_t share_ = 0, order_ = 0;
  int parts_ = 0;
  std::optional<Predictor> predictor_;
  SearchAnswer answer_;
};

}  // namespace hocket
