// The times by which the coordinator judges ranks; membership.h explains them. Thread: a value;
// any.
#pragma once

#include "base/clock.h"

namespace hocket {

struct LivenessLimits {
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration suspect_after = std::chrono::seconds(1);
  Duration lost_after = std::chrono::seconds(3);
  Duration reconnect = std::chrono::milliseconds(300);  // after a connection ended
  // Before a connected rank that was lost is in again; doubles.
  Duration pause = std::chrono::seconds(1);
  Duration max_pause = std::chrono::seconds(32);
  Duration good_after = std::chrono::seconds(60);  // a member for this long has its pause reset
  Duration gather = std::chrono::seconds(1);       // for all ranks, before some may be missing
  // Before a rank that is kept out by a cut link is in again nevertheless; doubles.
  Duration apart = std::chrono::minutes(10);
  Duration max_apart = std::chrono::hours(24);
};

}  // namespace hocket
