// Predicts how long a step takes, as a sum over its work:
//
//   us = fixed + row_us * rows + output_us * sampled tokens + key_us * attended keys
//      + expert_us * distinct experts
//
// rows: computed tokens; attended keys: for each row, itself and all before it; distinct experts:
// the mean under uniform routing, E (1 - (1 - k/E)^rows) in each MoE layer. The model is fitted to
// the output of `hocket bench one-batch --json`; its numbers hold for one model on one machine.
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
  // Time from a reply to the next request of the same client: HTTP and JSON, outside of steps.
  double turnaround_us = 500;
  // fitted / measured - 1| over the measurements.
  double residual_median = 0, max_residual = 0;

  double us(const StepWork& work) const;
  StepWork work_of(const Batch& batch) const;
  double experts_hit(double rows) const;
};

// Returns the model of the shape `small` of bench one-batch on two Zen 4 cores, fitted to the
// numbers in docs/results.md.
StepModel shipped_step_model();

// Fits by least squares of relative errors, with no coefficient below 0. Errors: bad_value if the
// lines lack prefills or decodes of several sizes.
Result<StepModel> fit_step_model(std::istream& bench_lines, const std::string& name);

// Reads a file of bench lines, which it fits, or of one object as to_json() writes it. Errors: io,
// bad_value.
Result<StepModel> read_step_model(const std::string& path);
std::string to_json(const StepModel& model);

}  // namespace hocket
