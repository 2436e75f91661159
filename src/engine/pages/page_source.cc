#include "engine/pages/page_source.h"

#include <algorithm>

#include "base/log.h"

namespace hocket {
namespace {

// A trial, which measures the speed, reads for at least this time or reads these bytes.
constexpr double kTrialSeconds = 0.05;
constexpr double kBytesRemembered = 64e6;
constexpr Duration kMeasurementLives = std::chrono::minutes(2);

}  // namespace

void PageSource::note_read(int64_t num_bytes, Duration took) {
  if (num_bytes <= 0) return;
  const TimePoint now = RealClock().now();
  const MutexLock lock(mutex_);
  const double kept =
      now - measured_ > kMeasurementLives ? 0 : std::min(1.0, kBytesRemembered / (bytes_ + 1));
  seconds_ = kept * seconds_ + to_seconds(took);
  bytes_ = kept * bytes_ + static_cast<double>(num_bytes);
  measured_ = now;
}

Duration PageSource::time_to_read(int64_t num_bytes) const {
  const MutexLock lock(mutex_);
  const bool is_known = (seconds_ >= kTrialSeconds || bytes_ >= kBytesRemembered) &&
                        RealClock().now() - measured_ <= kMeasurementLives;
  return is_known ? from_seconds(seconds_ / bytes_ * static_cast<double>(num_bytes))
                  : Duration::zero();
}

void PageSource::report(const Error& why, std::string_view consequence) {
  has_fault_ = true;
  const MutexLock lock(mutex_);
  if (reported_ == why.message) return;
  const auto num_kept_out = reports_.admit(RealClock().now());
  if (!num_kept_out) return;
  reported_ = why.message;
  log::warning("stored prefixes: {}; {} ({} other faults since the last such line). To fix it: {}",
               why.message, consequence, *num_kept_out, why.fix);
}

void PageSource::note_success() {
  if (!has_fault_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  if (!has_fault_.exchange(false) || reported_.empty()) return;
  reported_.clear();
  log::info("stored prefixes: {} works again", kPageTierNames[static_cast<size_t>(tier())]);
}

}  // namespace hocket
