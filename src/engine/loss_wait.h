// The time for which requests wait when ranks were lost. It runs from the loss to the next step
// that is committed, so that ranks that meet and lose each other again make no request wait longer.
// Thread: engine.
#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace hocket {

class LossWait {
 public:
  // limit 0: requests do not wait, they end.
  explicit LossWait(Duration limit) : limit_(limit) {}

  Duration limit() const { return limit_; }
  bool under_way() const { return until_.has_value(); }
  bool is_over(TimePoint now) const { return until_ && now >= *until_; }
  // Begins to wait, unless that is under way.
  void begin(TimePoint now) {
    if (until_) return;
    until_ = now + limit_;
    loading_ = {};
  }
  void end() { until_.reset(); }
  // Waits longer while experts are loaded for an epoch. Only the longest time since the loss
  // counts, so that epochs that follow each other prolong no wait for ever. Returns true if it
  // does.
  bool prolong(Duration loading) {
    if (!until_ || loading <= loading_) return false;
    *until_ += loading - std::exchange(loading_, loading);
    return true;
  }

 private:
  const Duration limit_;
  std::optional<TimePoint> until_;
  Duration loading_{};  // the part of the wait for loading experts
};

}  // namespace hocket
