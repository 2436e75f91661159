// Forecasts when prefill apart from decode (--disaggregation-mode) pays for a number of hosts:
// requests a second that all of them together complete while no token of an answer is later than
// an interval behind the one before.
//
//   mixed   each host computes prompts and answers: a step has the rows of b answers, and the
//           most rows of prompts with which it ends within the interval
//   split   some hosts compute prompts in whole chunks; the others answers alone, in batches as
//           large as the interval and the memory allow; pages travel between them
//
// Pure values. Thread: any.
#pragma once

#include <vector>

#include "engine/forecast/forecast.h"

namespace hocket {

struct SplitForecastInput {
  int num_hosts = 2;               // each is a service like the one that was forecast; at least 2
  int answer_len = 256;            // tokens of an answer
  double link_bytes_per_s = 1e9;   // between a host that computes prompts and one that answers
  std::vector<int> prompt_lens;    // tokens
  std::vector<double> interval_s;  // the limits
};

struct SplitPoint {
  int prompt_len = 0;
  double interval_s = 0;
  double mixed_per_s = 0;  // requests a second; 0: the interval cannot be kept
  double split_per_s = 0;
  int num_prefill = 0;  // hosts of the best split that compute prompts

  // Smallest gain for which a second kind of host is worth having.
  static constexpr double kMinGain = 1.1;
  bool pays() const { return split_per_s > 0 && split_per_s >= kMinGain * mixed_per_s; }
};

// Returns a point for each prompt and interval. Precondition: the forecast is of one rank that
// fits.
std::vector<SplitPoint> forecast_split(const Forecast& forecast, const MachineSpeed& speed,
                                       const SplitForecastInput& input);

}  // namespace hocket
