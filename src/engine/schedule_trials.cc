#include "engine/schedule_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hocket {
namespace {

constexpr double kEqualRows = 0.1;  // rows of two windows may differ by this share

double step_us(Duration time, int num_steps) {
  return num_steps > 0 ? to_us(time) / num_steps : 0;
}

}  // namespace

void ScheduleTrials::note(int rows, Duration period) {
  if (!is_trying_) {
    if (--steps_left_ > 0) return;
    is_trying_ = true;
    num_ratios_ = num_pairs_ = 0;
    sum_off_ = sum_on_ = {};
    overlaps_ = false;
    return begin_window();
  }
  if (++steps_in_window_ <= kLeftOut) return;
  Window& window = overlaps_ ? on_ : off_;
  window.rows += rows;
  window.time += period;
  if (++window.num_steps < kWindow) return;
  if (overlaps_) end_pair();
  if (!is_trying_) return;
  overlaps_ = !overlaps_;
  begin_window();
}

void ScheduleTrials::begin_window() {
  steps_in_window_ = 0;
  (overlaps_ ? on_ : off_) = {};
}

void ScheduleTrials::end_pair() {
  ++num_pairs_;
  const double more = static_cast<double>(on_.rows - off_.rows) / static_cast<double>(off_.rows);
  if (std::abs(more) <= kEqualRows) {
    ratios_.at(static_cast<size_t>(num_ratios_++)) =
        step_us(on_.time, on_.num_steps) / step_us(off_.time, off_.num_steps);
    for (const auto& [sum, one] : {std::pair(&sum_off_, &off_), std::pair(&sum_on_, &on_)}) {
      sum->rows += one->rows;
      sum->time += one->time;
      sum->num_steps += one->num_steps;
    }
  }
  if (num_ratios_ == kPairs || num_pairs_ == kMaxPairs) decide();
}

// The median counts, so that one disturbed window changes nothing.
void ScheduleTrials::decide() {
  is_trying_ = false;
  steps_left_ = kStepsBetween;
  const bool before = decided_;
  if (num_ratios_ == kPairs) {
    std::ranges::nth_element(ratios_, ratios_.begin() + kPairs / 2);
    share_ = ratios_.at(kPairs / 2);
    decided_ = share_ < kWorthIt;
    has_line_ = true;
  } else {
    decided_ = before;
  }
  overlaps_ = decided_;
}

std::optional<std::string> ScheduleTrials::take_log_line() {
  if (!std::exchange(has_line_, false)) return std::nullopt;
  return fmt::format(
      "a step of {:.0f} answers takes {:.0f} us if its scheduling overlaps the step before, {:.0f} "
      "us if not, so steps {} (--overlap-schedule auto)",
      static_cast<double>(sum_off_.rows) / std::max(1, sum_off_.num_steps),
      step_us(sum_on_.time, sum_on_.num_steps), step_us(sum_off_.time, sum_off_.num_steps),
      decided_ ? "overlap" : "do not overlap");
}

}  // namespace hocket
