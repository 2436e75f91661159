// How long steps take, learnt from those that ran:
//
//   us = fixed + a * prefill rows + b * decode rows + c * attended keys,   all >= 0
//
// by recursive least squares of relative errors. What steps of one kind teach is forgotten as
// others of that kind come, and never for want of them (R. Kulhavý, "Restricted
// exponential forgetting in real-time identification", Automatica 23, 1987). A step that is far off
// counts as one that is a little off; several in a row are a machine that changed its speed, which
// is then taken over at once for all terms. Pure arithmetic: equal steps give equal answers, and
// nothing allocates.   Thread: any one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// What makes a step long. keys: for each row those before it and its own.
struct StepShape {
  int prefill_rows = 0;
  int decode_rows = 0;  // alone in their slice, and they sample
  int64_t keys = 0;
};
StepShape shape_of(const Batch& batch);
// Keys of rows [begin, begin + len) of one request.
constexpr int64_t keys_of_rows(int64_t begin, int64_t len) {
  return len * begin + len * (len + 1) / 2;
}

class StepTimes {
 public:
  // A step that took no time at all teaches nothing.
  void note(const StepShape& shape, Duration took);
  // 0 while nothing was noted.
  Duration predict(const StepShape& shape) const;
  // Mean of |taken / predicted - 1|, over some sixty steps; 0.1 at first.
  double error() const { return error_; }

  // The most rows of a prompt, the first at position `begin`, that can join `others` so that the
  // step stays within the goal, less the usual error. In [at_least, most], whatever the goal, so
  // that prompts get on where the others alone take longer. No more than twice as many as were ever
  // seen beside decode rows: beyond that nothing is known.
  struct Limits {
    int at_least = 1, most = 1;
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

  Terms us_{};                            // of each term
  std::array<Terms, kNumTerms> doubt_{};  // their covariance, us^2
  double error_ = 0.1;
  double bias_ = 0;  // mean of taken / predicted - 1, over some eight steps
  int most_beside_decode_ = 0;
  bool begun_ = false;
};

}  // namespace hocket
