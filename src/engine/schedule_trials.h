// Decides by measured times whether steps overlap, for --overlap-schedule auto.
//
//   off ............ | off on off on .. off on | the faster way ............ | off on ..
//   steps_before      windows, in pairs          steps_between                windows again
//
// Only steps of answers alone that follow each other are counted, and only pairs of windows with
// about as many rows. The first steps of a window are left out, because threads change places.
// Thread: engine. Allocates only for a line of the log.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace hocket {

class ScheduleTrials {
 public:
  static constexpr int kStepsBefore = 256;
  static constexpr int kLeftOut = 4, kWindow = 28;  // steps of a window: left out, counted
  static constexpr int kPairs = 7;
  static constexpr int kMaxPairs = 3 * kPairs;  // tried without a result, while rows change
  static constexpr int64_t kStepsBetween = 50'000;
  static constexpr double kWorthIt = 0.995;  // steps overlap if that takes less than this share

  // Returns true if the next steps should overlap.
  bool overlaps() const { return overlaps_; }
  // Returns the time of a step that overlaps, as a share of one that does not; 1: none does.
  double overlapped_share() const { return decided_ ? share_ : 1; }
  // Notes a step of answers alone that followed another one: its rows, and the time between the
  // ends of the two.
  void note(int rows, Duration period);
  // Returns the log line of a decision, once.
  std::optional<std::string> take_log_line();

 private:
  struct Window {
    int64_t rows = 0;
    Duration time{};
    int num_steps = 0;  // counted
  };
  void begin_window();
  void end_pair();
  void decide();

  bool overlaps_ = false, decided_ = false, is_trying_ = false;
  int64_t steps_left_ = kStepsBefore;  // until the next trial
  int steps_in_window_ = 0;
  Window off_, on_;                      // the pair under way
  std::array<double, kPairs> ratios_{};  // time of a step: on / off
  int num_ratios_ = 0, num_pairs_ = 0;
  double share_ = 1;  // the median of the last trial
  Window sum_off_, sum_on_;
  bool has_line_ = false;
};

}  // namespace hocket
