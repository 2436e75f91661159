#include "engine/pages/unwritten_pages.h"

#include <fmt/core.h>

#include <array>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

// The sequence is that of UnwrittenReason. A write that fails, the end of the process and a lack of
// memory have their own warnings.
constexpr std::array<std::string_view, 3> kWhy = {
    "they were computed faster than a store took them",
    "they were evicted before they could be copied",
    "a store was away",
};

}  // namespace

ByUnwrittenReason<uint64_t> UnwrittenPages::counts() const {
  ByUnwrittenReason<uint64_t> counts{};
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = counts_[i];
  return counts;
}

void UnwrittenPages::count_and_warn(UnwrittenReason why, size_t num, bool takes_writes,
                                    TimePoint now) {
  HOCKET_CHECK(static_cast<size_t>(why) < kWhy.size());
  count(why, num);
  unreported_[static_cast<size_t>(why)] += num;
  const size_t all = std::accumulate(unreported_.begin(), unreported_.end(), size_t{0});
  if (all == 0 || !takes_writes || now < next_report_) return;
  std::string reasons;
  for (size_t i = 0; i < kWhy.size(); ++i)
    if (unreported_[i] > 0)
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ", kWhy[i], unreported_[i]);
  log::warning(
      "stored prefixes: {} pages or states were not written ({}); after an eviction or a restart "
      "they are computed again. If pages are computed faster than they are written: a faster disk "
      "or network, or --hicache-write-policy write_through_selective. If the store failed, an "
      "earlier line says why",
      all, reasons);
  unreported_ = {};
  next_report_ = now + kReportInterval;
}

}  // namespace hocket
