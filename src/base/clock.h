// A clock that can be injected: real in the server, set by hand in tests (clock_testing.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hocket {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

constexpr double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
constexpr double to_ms(Duration d) {
  return to_seconds(d) * 1e3;
}
constexpr double to_us(Duration d) {
  return to_seconds(d) * 1e6;
}
// The longest Duration that from_seconds() returns; several of them can be added to a TimePoint
// without overflow.
inline constexpr double kMaxSeconds = 1e9;  // 31 years
// Limits the result to +-kMaxSeconds; returns zero for NaN.
inline Duration from_seconds(double s) {
  const double within = s != s ? 0 : std::clamp(s, -kMaxSeconds, kMaxSeconds);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(within));
}

// Thread: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// Returns the time of RealClock in nanoseconds, for atomics and for loops that poll.
inline int64_t real_now_ns() {
  return RealClock().now().time_since_epoch().count();
}

}  // namespace hocket
