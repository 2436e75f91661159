// The time for which requests wait when ranks were lost. It runs from the loss to the next step
// that is committed, so that ranks that meet and lose each other again make no request wait longer.
// Thread: engine.
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
  // Waits longer while experts are loaded for an epoch, also if the wait begins later. Only the
  // longest time until end() counts, so that epochs that follow each other prolong no wait for
  // ever. Returns true if a wait that is under way gets longer.
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
