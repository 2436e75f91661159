// The time for which requests wait after ranks were lost; LostRanks ends them and their streams
// when it is over. It runs from the loss until the next step is committed, so ranks that connect
// and lose each other again do not prolong the wait. Thread: engine.
#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace hocket {

class LostRankTimeout {
 public:
  // limit 0: requests do not wait, they end.
  explicit LostRankTimeout(Duration limit) : limit_(limit) {}

  Duration limit() const { return limit_; }
  bool under_way() const { return until_.has_value(); }
  bool is_over(TimePoint now) const { return until_ && now >= *until_; }
  // Begins to wait, unless that is under way.
  void begin(TimePoint now) {
    if (!until_) until_ = now + limit_ + loading_;
  }
  void end() {
    until_.reset();
    loading_ = {};
  }
  // Prolongs the wait by the time that loading experts for an epoch takes, also if the wait begins
  // later. Until end() only the longest such time counts, so a series of epochs does not prolong a
  // wait for ever. Returns true if a wait that is under way gets longer.
  bool prolong(Duration loading) {
    if (loading <= loading_) return false;
    const Duration more = loading - std::exchange(loading_, loading);
    if (until_) *until_ += more;
    return until_.has_value();
  }

 private:
  const Duration limit_;
  std::optional<TimePoint> until_;
  Duration loading_{};  // the part of the wait for loading experts
};

}  // namespace hocket
