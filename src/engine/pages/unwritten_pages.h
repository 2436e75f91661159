// Counts the pages and states of a rank that are not written to stores, and warns of them.
// Owner: the rank's CacheTier.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "engine/stats/unwritten_reasons.h"

namespace hocket {

class UnwrittenPages {
 public:
  static constexpr Duration kReportInterval = std::chrono::seconds(60);

  // Thread: any.
  void count(UnwrittenReason why, size_t num) { counts_[static_cast<size_t>(why)] += num; }
  ByUnwrittenReason<uint64_t> counts() const;
  // Counts them. Warns, at most once in kReportInterval, of all that this function has counted
  // since the last warning; not while no store takes writes, since that has been said. Thread:
  // engine.
  void count_and_warn(UnwrittenReason why, size_t num, bool takes_writes, TimePoint now);

 private:
  ByUnwrittenReason<std::atomic<uint64_t>> counts_{};
  ByUnwrittenReason<size_t> unreported_{};
  TimePoint next_report_{};
};

}  // namespace hocket
