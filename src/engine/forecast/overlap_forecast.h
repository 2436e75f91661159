// Forecasts the gain of overlap and its best plan, for sizes of steps and speeds of links: with
// forecast times of operations (stage_estimate.h), by the search that the server makes with
// measured times. Pure. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "compute/overlap/search.h"
#include "engine/plan/stage_estimate.h"

namespace hocket {

struct OverlapForecastInput {
  const ModelChoice& choice;
  const ModelCost& cost;
  MachineSpeed speed;  // speed of one rank
  int num_ranks = 2;
  std::vector<StageLink> links;
  std::vector<int> decode_rows, prefill_rows;  // rows of one rank
  int kv_len = 1024;                           // keys that each decode row reads
  int row_tile = 1;
};

struct OverlapPoint {
  Bucket bucket;
  StageLink link;
  Plan plan;
  double none_us = 0, step_us = 0, lower_bound_us = 0;
  double exposed_us = 0;  // time waiting for the exchange, without overlap
  double hidden = 0;      // share of that time which the plan hides
  std::string why;

  double gain() const { return 1 - step_us / none_us; }  // share of the time without overlap
};

// Returns the points link by link, prefill first, rows in the given order. Plays the orders of
// OrderTable::builtin(). A dense model, or one rank, has no points.
std::vector<OverlapPoint> forecast_overlap(const OverlapForecastInput& input);

}  // namespace hocket
