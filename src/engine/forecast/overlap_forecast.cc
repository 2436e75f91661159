#include "engine/forecast/overlap_forecast.h"

#include "compute/overlap/explain.h"

namespace hocket {
namespace {

OverlapPoint best_at(const StageEstimate& stages, const Bucket& bucket, int row_tile) {
  const SearchInput input{.model = stages,
                          .orders = OrderTable::builtin(),
                          .layers = stages.layers(bucket),
                          .bucket = bucket,
                          .row_tile = row_tile};
  const SearchResult answer = search(input);
  OverlapPoint point{.bucket = bucket,
                     .plan = answer.best().plan,
                     .none_us = answer.best_of[0].step_us,
                     .step_us = answer.best().step_us,
                     .lower_bound_us = answer.lower_bound_us,
                     .exposed_us = answer.reason.none.exposed_us,
                     .why = explain(answer)};
  const double exposed_us = predict_plan(input, answer.best().plan).exposed_us;
  if (point.exposed_us > 0) point.hidden = 1 - exposed_us / point.exposed_us;
  return point;
}

}  // namespace

std::vector<OverlapPoint> forecast_overlap(const OverlapForecastInput& q) {
  std::vector<OverlapPoint> points;
  if (q.num_ranks < 2 || q.choice.model.moe.num_experts == 0) return points;
  for (const StageLink& link : q.links) {
    const StageEstimate stages(q.choice, q.cost,
                               {.speed = q.speed, .num_ranks = q.num_ranks, .link = link});
    const auto add = [&](const Bucket& bucket) {
      points.push_back(best_at(stages, bucket, q.row_tile));
      points.back().link = link;
    };
    for (const int64_t rows : q.prefill_rows)
      add({Phase::prefill, static_cast<int>(rows), rows * (rows + 1) / 2});
    for (const int rows : q.decode_rows) add({Phase::decode, rows, int64_t{rows} * q.kv_len});
  }
  return points;
}

}  // namespace hocket
