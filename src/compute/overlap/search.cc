#include "compute/overlap/search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compute/forward/split.h"

namespace hocket {
namespace {

// The times of the halves at every share, made when one is asked for. The bucket must have two rows
// or more.
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
  bool are_alike(int share, int other) const {
    return (*halves_of(q_.bucket, share, q_.row_tile))[0].rows ==
           (*halves_of(q_.bucket, other, q_.row_tile))[0].rows;
  }

 private:
  const SearchInput& q_;
  std::array<std::optional<std::array<StageTimes, 2>>, kWholeShare> times_;
};

// Adds the candidates, still without times.
void list_candidates(const SearchInput& q, SearchResult& answer) {
  for (int order = 0; order < q.orders.size(); ++order) {
    const bool is_two = q.orders.at(order).num_halves == 2;
    // Orders of one half differ only in the place of the shared expert.
    const bool is_new = is_two ? q.bucket.rows > 1 : order == 0 || q.layers.has_shared;
    if (q.orders.at(order).forced_only || !is_new) continue;
    for (const auto& [parts, waves] : kTuning.grains) {
      const Plan plan{.order = order, .parts = parts, .waves = waves};
      answer.candidates.push_back({plan, kind_of(plan, q.orders)});
    }
  }
}

void keep_faster(double step_us, int share, Candidate& candidate) {
  if (candidate.step_us > 0 && step_us >= candidate.step_us) return;
  candidate.step_us = step_us, candidate.plan.share = share;
}

// Predicts the candidates of as many halves in this grain at a share, and keeps the faster share of
// each.
void predict_grain(const SearchInput& q, std::span<const StageTimes> halves, const Grain& grain,
                   int share, SearchResult& answer) {
  const Predictor predictor(halves, grain, q.layers);
  answer.lower_bound_us = std::min(answer.lower_bound_us, predictor.lower_bound_us());
  for (Candidate& candidate : answer.candidates) {
    const Order& order = q.orders.at(candidate.plan.order);
    if (candidate.plan.grain() == grain && order.num_halves == std::ssize(halves))
      keep_faster(predictor.step_us(order), share, candidate);
  }
}

// Moves a candidate of two halves to its best share. Neighbouring shares take about the same time,
// so steps to both sides of the best so far, each half as long as the one before, find it:
//
//   16 ............... 32 ............... 48     16 is the best
//   8 ........ 24                                24 is, then of 20 and 28, 26 and 30, ...
void move_to_best_share(const SearchInput& q, Cuts& cuts, Candidate& candidate,
                        SearchResult& answer) {
  for (int apart = kEvenShare / 2; apart > 0; apart /= 2)
    for (const int share : {candidate.plan.share - apart, candidate.plan.share + apart}) {
      if (share < 1 || share >= kWholeShare || cuts.are_alike(share, candidate.plan.share))
        continue;
      const Predictor predictor(cuts.at(share), candidate.plan.grain(), q.layers);
      answer.lower_bound_us = std::min(answer.lower_bound_us, predictor.lower_bound_us());
      keep_faster(predictor.step_us(q.orders.at(candidate.plan.order)), share, candidate);
    }
}

// Predicts the candidates of two halves. The best share depends on the grain more than on the
// order, so it is sought for the fastest order of each grain, and the others are predicted there,
// too. A search for each order would take four times as long. In waves of one part, which may be of
// unequal length, the best share may lie in a valley of its own near the least one: there all
// orders are predicted at two shares more, and the fastest one after that is moved again.
void predict_two_halves(const SearchInput& q, SearchResult& answer) {
  const auto is_two = [](const Candidate& candidate) {
    return candidate.kind == PlanKind::two_batch;
  };
  if (std::ranges::none_of(answer.candidates, is_two)) return;
  Cuts cuts(q);
  for (const Grain& grain : kTuning.grains) {
    const auto predict_at = [&](int share) {
      if (!cuts.are_alike(share, kEvenShare))
        predict_grain(q, cuts.at(share), grain, share, answer);
    };
    const bool is_in_waves = grain.parts == 1 && grain.waves > 1;
    predict_grain(q, cuts.at(kEvenShare), grain, kEvenShare, answer);
    if (is_in_waves) predict_at(kEvenShare / 2), predict_at(1);
    const Candidate* moved = nullptr;
    for (int round = 0; round < (is_in_waves ? 2 : 1); ++round) {
      Candidate& best =
          *std::ranges::min_element(answer.candidates, {}, [&](const Candidate& candidate) {
            return is_two(candidate) && candidate.plan.grain() == grain
                       ? candidate.step_us
                       : std::numeric_limits<double>::infinity();
          });
      if (std::exchange(moved, &best) == &best) break;
      move_to_best_share(q, cuts, best, answer);
      predict_at(best.plan.share);
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
  list_candidates(q, answer);
  for (const Grain& grain : kTuning.grains)
    predict_grain(q, std::span(&whole, 1), grain, kEvenShare, answer);
  if (q.bucket.rows > 1) predict_two_halves(q, answer);
  for (const Candidate& candidate : answer.candidates) {
    Candidate& best = answer.best_of[static_cast<size_t>(candidate.kind)];
    if (best.step_us == 0 || candidate.step_us < best.step_us) best = candidate;
  }
  answer.reason = reason_of(q, whole, answer.best_of[static_cast<size_t>(PlanKind::two_batch)]);
  return answer;
}

}  // namespace hocket
