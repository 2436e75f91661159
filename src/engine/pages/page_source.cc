#include "engine/pages/page_source.h"

#include <algorithm>

#include "base/log.h"

namespace hocket {
namespace {

constexpr double kBytesPerSecondAtFirst = 200e6;
constexpr Duration kMeasurementLives = std::chrono::minutes(2);
// The newest measurement counts as if so many bytes came before it.
constexpr double kBytesRemembered = 64e6;

}  // namespace

void PageSource::note_read(int64_t num_bytes, Duration took) {
  if (num_bytes <= 0) return;
  const auto bytes = static_cast<double>(num_bytes);
  const double newest = to_seconds(took) / bytes;
  const TimePoint now = RealClock().now();
  const MutexLock lock(mutex_);
  const bool is_first = seconds_per_byte_ == 0 || now - measured_ > kMeasurementLives;
  const double share = is_first ? 1 : bytes / (bytes + kBytesRemembered);
  seconds_per_byte_ = std::max(1e-15, (1 - share) * seconds_per_byte_ + share * newest);
  measured_ = now;
}

Duration PageSource::time_to_read(int64_t num_bytes) const {
  const MutexLock lock(mutex_);
  const bool is_known = seconds_per_byte_ > 0 && RealClock().now() - measured_ <= kMeasurementLives;
  return from_seconds((is_known ? seconds_per_byte_ : 1 / kBytesPerSecondAtFirst) *
                      static_cast<double>(num_bytes));
}

void PageSource::report(const Error& why, std::string_view consequence) {
  has_fault_ = true;
  const MutexLock lock(mutex_);
  if (reported_ == why.message) return;
  reported_ = why.message;
  log::warning("stored prefixes: {}; {}. To mend it: {}", why.message, consequence, why.fix);
}

void PageSource::note_success() {
  if (!has_fault_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  if (!has_fault_.exchange(false)) return;
  reported_.clear();
  log::info("stored prefixes: {} works again", kPageTierNames[static_cast<size_t>(tier())]);
}

}  // namespace hocket
