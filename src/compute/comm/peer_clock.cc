#include "compute/comm/peer_clock.h"

#include <algorithm>

namespace hocket {

namespace {

// These compute modulo 2^64, so that no value that a peer sends overflows.
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

int64_t lesser(int64_t a, int64_t b) {
  if (a == PeerClock::kNone || b == PeerClock::kNone) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

void PeerClock::heard(TimePoint arrived, int64_t pushed_ns, int64_t min_there) {
  const int64_t arrived_ns = arrived.time_since_epoch().count();
  const int64_t seen = difference(arrived_ns, pushed_ns);
  const Duration age = arrived - now_.begin;
  if (now_.min == kNone || age >= kWindow) {
    before_ = age < 2 * kWindow ? now_ : Window{};
    now_ = {.begin = arrived};
  }
  now_.min = lesser(now_.min, seen);
  const int64_t min_here = min_seen(arrived);
  const int64_t ahead = min_there == kNone ? min_here : difference(min_here / 2, min_there / 2);
  pushed_ = std::min(arrived, TimePoint(Duration(sum(pushed_ns, ahead))));
}

int64_t PeerClock::min_seen(TimePoint now) const {
  return now - now_.begin >= 2 * kWindow ? kNone : lesser(now_.min, before_.min);
}

}  // namespace hocket
