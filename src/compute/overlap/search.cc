#include "compute/overlap/search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compute/forward/split.h"

namespace hocket {
namespace {

// Predicts the table's orders of as many halves, in all parts and waves.
void predict_all(const SearchInput& q, std::span<const StageTimes> halves, int share,
                 SearchResult& answer) {
  for (const Grain& grain : kTuning.grains_of(static_cast<int>(halves.size()))) {
    const Predictor predictor(halves, grain, q.layers);
    answer.lower_bound_us = std::min(answer.lower_bound_us, predictor.lower_bound_us());
    for (int order = 0; order < q.orders.size(); ++order) {
      if (q.orders.at(order).num_halves != std::ssize(halves) || q.orders.at(order).forced_only)
        continue;
      // Orders of one half differ only in the place of the shared expert.
      if (halves.size() == 1 && order != 0 && !q.layers.has_shared) continue;
      const Plan plan{.order = order, .parts = grain.parts, .waves = grain.waves, .share = share};
      const Candidate candidate{plan, kind_of(plan, q.orders),
                                predictor.step_us(q.orders.at(order))};
      answer.candidates.push_back(candidate);
      Candidate& best = answer.best_of[static_cast<size_t>(candidate.kind)];
      if (best.step_us == 0 || candidate.step_us < best.step_us) best = candidate;
    }
  }
}

SearchReason reason_of(const SearchInput& q, const StageTimes& whole, const Candidate& two) {
  SearchReason reason;
  reason.none = predict_plan(q, {});
  reason.latency_us = q.layers.num_moe * (whole.dispatch.latency_us + whole.combine.latency_us);
  if (two.step_us == 0) return reason;
  reason.two = predict_plan(q, two.plan);
  const StageTimes half = q.model.at((*halves_of(q.bucket, two.plan.share, q.row_tile))[1]);
  reason.experts_us = half.of(Op::experts);
  reason.attn_us = half.mean_attention(q.layers) + half.of(Op::gate);
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
  predict_all(q, std::span(&whole, 1), kEvenShare, answer);
  // If several shares give the same cut, only the first one is predicted.
  std::array<int, kTuning.shares.size()> cuts{};
  for (size_t i = 0; i < cuts.size(); ++i) {
    const auto halves = halves_of(q.bucket, kTuning.shares[i], q.row_tile);
    if (!halves) break;
    cuts[i] = (*halves)[0].rows;
    if (std::find(cuts.begin(), cuts.begin() + i, cuts[i]) != cuts.begin() + i) continue;
    const std::array times = {q.model.at((*halves)[0]), q.model.at((*halves)[1])};
    predict_all(q, times, kTuning.shares[i], answer);
  }
  answer.reason = reason_of(q, whole, answer.best_of[static_cast<size_t>(PlanKind::two_batch)]);
  return answer;
}

}  // namespace hocket
