// Predicts how long steps take, from those that ran:
//
//   us = fixed + a * prefill rows + b * decode rows + c * attended keys,   all >= 0
//
// by recursive least squares of relative errors. Steps of one kind make the estimate forget older
// steps of that kind only (R. Kulhavý, "Restricted exponential forgetting in real-time
// identification", Automatica 23, 1987). A step that is far off counts as one that is a little off.
// Several of them in a row mean that the machine changed its speed; then all terms follow at once.
// Pure arithmetic: equal steps give equal answers, and nothing allocates.   Thread: any one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// The quantities that make a step long. keys: summed over rows, the row itself and all before it.
struct StepShape {
  int prefill_rows = 0;
  int decode_rows = 0;  // slices that sample behind one known token: its row, and those of drafts
  int64_t keys = 0;
};
StepShape shape_of(const Batch& batch);
// Returns the keys of rows [begin, begin + len) of one request.
constexpr int64_t keys_of_rows(int64_t begin, int64_t len) {
  return len * begin + len * (len + 1) / 2;
}

class StepTimes {
 public:
  // Learns from one step; a step of no time is ignored.
  void note(const StepShape& shape, Duration took);
  // Returns the predicted time; 0 before the first note().
  Duration predict(const StepShape& shape) const;
  // Returns the mean of |taken / predicted - 1| over some sixty steps; 0.1 at first.
  double error() const { return error_; }

  // Returns the most rows of a prompt, the first at position `begin`, that can join `others` so
  // that the step stays within the goal, less the usual error. The result is in [min_rows,
  // max_rows] whatever the goal is, so that prompts continue even if the others alone take longer.
  // Above min_rows, all prefill rows together are at most twice as many as were ever seen beside
  // decode rows, since no step shows the cost of more.
  struct Limits {
    int min_rows = 1, max_rows = 1;
  };
  int prefill_rows_within(Duration goal, const StepShape& others, int begin, Limits limits) const;

 private:
  static constexpr size_t kNumTerms = 4;  // fixed, prefill row, decode row, 4096 keys
  using Terms = std::array<double, kNumTerms>;

  static Terms terms_of(const StepShape& shape);
  double us(const Terms& terms) const;
  void begin(const Terms& terms, double us);
  void watch_speed(double off, double share);
  void keep_above_zero();

  Terms us_{};                                 // estimate for each term
  std::array<Terms, kNumTerms> covariance_{};  // covariance of the estimates, us^2
  double error_ = 0.1;
  double bias_ = 0;  // mean of taken / predicted - 1 over some eight steps
  int max_beside_decode_ = 0;
  bool begun_ = false;
};

}  // namespace hocket
