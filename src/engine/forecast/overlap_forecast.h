// Whether overlap would pay, and which plan: for sizes of steps and speeds of links, from what
// operations would take on a machine (stage_forecast.h), by the search that the server makes with
// what it measures.   Pure.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "compute/overlap/search.h"
#include "engine/forecast/stage_forecast.h"

namespace hocket {

struct OverlapQuestion {
  const ModelChoice& choice;
  const ModelCost& cost;
  MachineSpeed speed;  // of a rank
  int num_ranks = 2;
  std::vector<StageLink> links;
  std::vector<int> decode_rows, prefill_rows;  // of a rank
  int kv_len = 1024;                           // that each row of answers reads
  int row_tile = 1;
};

struct OverlapPoint {
  Bucket bucket;
  StageLink link;
  Plan plan;
  double none_us = 0, step_us = 0, lower_bound_us = 0;
  double exposed_us = 0;  // of the exchange, without overlap
  double hidden = 0;      // share of that which the plan hides
  std::string why;

  double gain() const { return 1 - step_us / none_us; }  // of the time without overlap
};

// Link by link, prefill first, rows as given. Plays the orders of OrderTable::builtin(). A dense
// model, or one rank, has no points.
std::vector<OverlapPoint> forecast_overlap(const OverlapQuestion& question);

}  // namespace hocket
