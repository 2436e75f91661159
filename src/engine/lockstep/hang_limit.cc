#include "engine/lockstep/hang_limit.h"

#include <algorithm>

namespace hocket {
namespace {

// A step counts as hung after ten times the time of the last step of its mode plus 1 s. If more
// rows are foreseen than that one had, it gets as many times longer, but not more than 30 s because
// of it. The first steps get 30 s, because memory is cold.
constexpr Duration kFirstSteps = std::chrono::seconds(30);
constexpr Duration kSlack = std::chrono::seconds(1);
constexpr int kPatience = 10;

}  // namespace

void HangLimit::end(Phase phase, int rows, TimePoint now) {
  if (begin_) note(phase, rows, now - *begin_);
  begin_.reset();
}

Duration HangLimit::hung_after(Phase phase, int rows) const {
  const std::optional<Step>& last = last_.at(index_of(phase));
  if (!last) return kFirstSteps;
  const Duration as_last = kPatience * last->took;
  const double more_rows = std::max(1.0, static_cast<double>(rows) / std::max(1, last->rows));
  const double scaled_s = std::min(to_seconds(as_last) * more_rows, to_seconds(kFirstSteps));
  return kSlack + std::max(as_last, from_seconds(scaled_s));
}

}  // namespace hocket
