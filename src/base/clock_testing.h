// A clock that tests move by hand. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace hocket {

// Does not move until it is advanced.
class FakeClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(ns_.load())); }
  void advance(Duration d) { ns_ += d.count(); }

 private:
  std::atomic<int64_t> ns_{0};
};

}  // namespace hocket
