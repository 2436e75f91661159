// How long a step takes, as a sum of what it does:
//
//   us = fixed + row_us * rows + output_us * sampled tokens + key_us * attended keys
//      + expert_us * distinct experts
//
// rows: tokens that are computed; attended keys: for each row those before it and its own;
// distinct experts: what uniform routing hits, E (1 - (1 - k/E)^rows) in each MoE layer. Fitted
// from what `hocket bench one-batch --json` prints; the numbers are of one model on one machine.
#pragma once

#include <array>
#include <istream>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/scheduler/batch.h"

namespace hocket {

struct StepWork {
  double passes = 0, rows = 0, outputs = 0, keys = 0, experts = 0;
};

struct StepModel {
  std::string name;
  double fixed_us = 0, row_us = 0, output_us = 0, key_us = 0, expert_us = 0;
  int num_experts = 0, top_k = 0, num_moe_layers = 0;  // num_experts 0: a dense model
  // From a reply to the next request of the same client: HTTP and JSON, which no step pays for.
  double turnaround_us = 500;
  // |fitted / measured - 1| over the measurements.
  double residual_median = 0, residual_max = 0;

  double us(const StepWork& work) const;
  StepWork work_of(const Batch& batch) const;
  double experts_hit(double rows) const;
};

// The shape `small` of bench one-batch on two Zen 4 cores: fitted to the figures of
// docs/performance.md.
StepModel shipped_step_model();

// Least squares of relative errors with no coefficient below 0. Errors: bad_value where the lines
// lack what is needed: both prefills and decodes of several sizes.
Result<StepModel> fit_step_model(std::istream& bench_lines, const std::string& name);

// A file of bench lines, which are fitted, or of one object as to_json() writes.
// Errors: io, bad_value.
Result<StepModel> read_step_model(const std::string& path);
std::string to_json(const StepModel& model);

}  // namespace hocket
