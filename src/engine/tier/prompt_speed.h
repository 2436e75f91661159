// The time that a prompt's row takes, from the steps with prompts: each row counts alike, however
// many a step has, and newer steps count more.   Thread: one.
#pragma once

#include "base/clock.h"

namespace hocket {

class PromptSpeed {
 public:
  // Begins with the seconds of a row as they were measured before; 0: not measured.
  explicit PromptSpeed(double row_seconds = 0)
      : mean_seconds_(row_seconds), mean_rows_(row_seconds > 0 ? 1 : 0) {}
  void note(int num_rows, Duration took) {
    if (num_rows <= 0) return;
    const double newest = mean_rows_ == 0 ? 1 : kNewestShare;
    mean_seconds_ += newest * (to_seconds(took) - mean_seconds_);
    mean_rows_ += newest * (num_rows - mean_rows_);
  }
  bool is_known() const { return mean_rows_ > 0; }
  // Precondition: is_known().
  Duration time_of(int num_rows) const {
    return from_seconds(mean_seconds_ / mean_rows_ * num_rows);
  }

 private:
  // Share of the newest step in the means.
  static constexpr double kNewestShare = 0.2;

  double mean_seconds_, mean_rows_;  // means of the steps
};

}  // namespace hocket
