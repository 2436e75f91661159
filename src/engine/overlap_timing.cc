#include "engine/overlap_timing.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

// Bounds of one sleep while waiting for new requests; shorter waits are skipped.
constexpr Duration kMaxSleep = std::chrono::seconds(1);
constexpr Duration kMinSleep = std::chrono::microseconds(100);
// A step is expected to take at least this share of the shorter of the last two.
constexpr double kSureShare = 0.75;

}  // namespace

void OverlapTiming::decide(bool decides) {
  note_idle();
  if (!decides) return trials_.reset();
  if (!trials_) trials_.emplace();
}

void OverlapTiming::note_commit(const Flight& flight, bool of_answers, bool overlapped,
                                TimePoint now) {
  if (!trials_) return;
  const auto before = std::exchange(last_answers_, std::nullopt);
  if (!of_answers || overlapped != trials_->overlaps() || flight.batch->num_drafts > 0) return;
  last_answers_ = now;
  if (!before) return;
  const Duration between = now - *before, drafting = flight.drafting.took;
  // Behind a late commit the passes of the module may have ended before it.
  const Duration took = between > drafting ? between - drafting : between;
  trials_->note(std::max(1, flight.batch->num_rows), took);
  if (!log::enabled(log::Level::info)) return;  // a line allocates
  if (const auto line = trials_->take_log_line()) log::info("{}", *line);
}

Duration OverlapTiming::time_to_sleep(const Flight& finished, int rows, TimePoint now) {
  const Duration took = std::exchange(last_took_, finished.took());
  if (rows < finished.batch->num_rows) return {};
  const Duration sure =
      std::chrono::duration_cast<Duration>(kSureShare * std::min(took, finished.took()));
  const Duration remaining = finished.end + sure - preparing_ - now;
  return remaining < kMinSleep ? Duration{} : std::min(remaining, kMaxSleep);
}

}  // namespace hocket
