#include "bench/wide_search.h"

#include "bench/found_orders.h"

namespace hocket {
namespace {

void keep_better(const SearchInput& q, std::span<const StageTimes> halves, Plan plan,
                 Candidate& best) {
  const Predictor predictor(halves, plan.grain(), q.layers);
  if (best.step_us > 0 && predictor.lower_bound_us() >= best.step_us) return;
  for (plan.order = 0; plan.order < q.orders.size(); ++plan.order) {
    const Order& order = q.orders.at(plan.order);
    if (order.num_halves != std::ssize(halves)) continue;
    const double us = predictor.step_us(order);
    if (best.step_us == 0 || us < best.step_us) best = {plan, kind_of(plan, q.orders), us};
  }
}

}  // namespace

const OrderTable& all_orders() {
  static const OrderTable table = OrderTable::with(all_two_half_orders());
  return table;
}

Candidate best_of_all(const SearchInput& q) {
  Candidate best;
  const StageTimes whole = q.model.at(q.bucket);
  for (const Grain& grain : kTuning.grains) {
    const Plan plan{.parts = grain.parts, .waves = grain.waves};
    keep_better(q, std::span(&whole, 1), plan, best);
    int last_first = 0;
    for (int share = 1; share < kWholeShare; ++share) {
      const auto halves = halves_of(q.bucket, share, q.row_tile);
      if (!halves || (*halves)[0].rows == last_first) continue;  // the same halves again
      last_first = (*halves)[0].rows;
      const std::array times = {q.model.at((*halves)[0]), q.model.at((*halves)[1])};
      keep_better(q, times, {.parts = plan.parts, .waves = plan.waves, .share = share}, best);
    }
  }
  return best;
}

}  // namespace hocket
