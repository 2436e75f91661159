#include "compute/overlap/search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compute/forward/split.h"

namespace hocket {
namespace {

// The times of the halves at every share, made when one is asked for.
class Cuts {
 public:
  explicit Cuts(const SearchInput& q) : q_(q) {}
  std::span<const StageTimes> at(int share) {
    auto& times = times_[static_cast<size_t>(share)];
    if (!times) {
      const auto halves = halves_of(q_.bucket, share, q_.row_tile);
      times = {q_.model.at((*halves)[0]), q_.model.at((*halves)[1])};
    }
    return *times;
  }

 private:
  const SearchInput& q_;
  std::array<std::optional<std::array<StageTimes, 2>>, kWholeShare> times_;
};

// Predicts a plan, and makes it the candidate if it is faster.
void try_plan(const SearchInput& q, std::span<const StageTimes> halves, const Plan& plan,
              Candidate& candidate, SearchResult& answer) {
  const Predictor predictor(halves, plan.grain(), q.layers);
  answer.lower_bound_us = std::min(answer.lower_bound_us, predictor.lower_bound_us());
  const double us = predictor.step_us(q.orders.at(plan.order));
  if (candidate.step_us == 0 || us < candidate.step_us)
    candidate = {plan, kind_of(plan, q.orders), us};
}

// Predicts an order of two halves at its best share. Neighbouring shares take about the same time,
// so steps to both sides of the best so far, each half as long as the one before, find it:
//
//   16 ............... 32 ............... 48     16 is the best
//   8 ........ 24                                24 is, then of 20 and 28, 26 and 30, ...
Candidate at_best_share(const SearchInput& q, Plan plan, Cuts& cuts, SearchResult& answer) {
  Candidate best;
  const auto try_share = [&](int share) {
    plan.share = share;
    try_plan(q, cuts.at(share), plan, best, answer);
  };
  try_share(kEvenShare);
  for (int apart = kEvenShare / 2; apart > 0; apart /= 2)
    for (const int share : {best.plan.share - apart, best.plan.share + apart}) try_share(share);
  return best;
}

SearchReason reason_of(const SearchInput& q, const StageTimes& whole, const Candidate& two) {
  SearchReason reason;
  reason.none = predict_plan(q, {});
  reason.latency_us = q.layers.num_moe * (whole.dispatch.latency_us + whole.combine.latency_us);
  if (two.step_us == 0) return reason;
  reason.two = predict_plan(q, two.plan);
  const StageTimes half = q.model.at((*halves_of(q.bucket, two.plan.share, q.row_tile))[1]);
  reason.experts_us = half.of(Op::experts);
  reason.attn_us = half.of(Op::attn_in) + half.of(Op::attn_core) + half.of(Op::gate);
  return reason;
}

}  // namespace

const Candidate& SearchResult::best() const {
  return *std::ranges::min_element(candidates, {}, &Candidate::step_us);
}

std::optional<std::array<Bucket, 2>> halves_of(const Bucket& bucket, int share, int row_tile) {
  if (bucket.rows < 2) return std::nullopt;
  const int first = rows_by_share(bucket.rows, {.share = share, .row_tile = row_tile});
  std::array<Bucket, 2> halves = {bucket, bucket};
  halves[0].rows = first;
  halves[0].kv_tokens = bucket.kv_tokens * first / bucket.rows;
  halves[1].rows = bucket.rows - first;
  halves[1].kv_tokens = bucket.kv_tokens - halves[0].kv_tokens;
  return halves;
}

Prediction predict_plan(const SearchInput& q, const Plan& plan) {
  const Order& order = q.orders.at(plan.order);
  std::array<StageTimes, 2> times = {q.model.at(q.bucket), {}};
  if (order.num_halves == 2) {
    // Where there is no cut, the second half is empty.
    const auto halves = halves_of(q.bucket, plan.share, q.row_tile);
    if (halves) times[0] = q.model.at((*halves)[0]);
    times[1] = q.model.at(halves ? (*halves)[1] : Bucket{.phase = q.bucket.phase});
  }
  const auto used = std::span(times).first(static_cast<size_t>(order.num_halves));
  return Predictor(used, plan.grain(), q.layers).predict(order);
}

SearchResult search(const SearchInput& q, SearchResult used) {
  SearchResult answer = std::move(used);
  answer.candidates.clear();
  answer.best_of = {};
  answer.lower_bound_us = std::numeric_limits<double>::infinity();
  const StageTimes whole = q.model.at(q.bucket);
  Cuts cuts(q);
  for (int order = 0; order < q.orders.size(); ++order) {
    const bool is_two = q.orders.at(order).num_halves == 2;
    // Orders of one half differ only in the place of the shared expert.
    const bool is_new = is_two ? q.bucket.rows > 1 : order == 0 || q.layers.has_shared;
    if (q.orders.at(order).forced_only || !is_new) continue;
    for (const auto& [parts, waves] : kTuning.grains) {
      const Plan plan{.order = order, .parts = parts, .waves = waves};
      Candidate candidate;
      if (is_two)
        candidate = at_best_share(q, plan, cuts, answer);
      else
        try_plan(q, std::span(&whole, 1), plan, candidate, answer);
      answer.candidates.push_back(candidate);
      Candidate& best = answer.best_of[static_cast<size_t>(candidate.kind)];
      if (best.step_us == 0 || candidate.step_us < best.step_us) best = candidate;
    }
  }
  answer.reason = reason_of(q, whole, answer.best_of[static_cast<size_t>(PlanKind::two_batch)]);
  return answer;
}

}  // namespace hocket
