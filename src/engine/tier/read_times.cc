#include "engine/tier/read_times.h"

#include <algorithm>

#include "engine/tier/cache_tier_options.h"

namespace hocket {
namespace {

// SGLang's limit of a wait, until the speed of prompts is known.
constexpr Duration kWaitAtFirst = std::chrono::seconds(1);
constexpr Duration kWaitPerToken = std::chrono::microseconds(250);

}  // namespace

Duration ReadTimes::to_compute(int num_tokens) const {
  if (!speed_.is_known()) return kWaitAtFirst + num_tokens * kWaitPerToken;
  return speed_.time_of(num_tokens);
}

bool ReadTimes::are_worth_reading(int num_tokens, int num_running) const {
  if (num_tokens >= CacheTierOptions::kMinTokens) return true;
  if (num_tokens <= 0 || !speed_.is_known()) return false;
  const int64_t bytes =
      num_tokens / options_.page_tokens * options_.page_bytes + options_.state_bytes;
  const Duration missed = num_running > 0 ? last_step_ : Duration::zero();
  return std::ranges::any_of(reader_.sources(), [&](const PageSource* source) {
    const Duration reading = source->time_to_read(bytes);
    const bool is_known = reading > Duration::zero();
    return is_known && !source->is_away() && reading + missed < speed_.time_of(num_tokens);
  });
}

std::optional<UnreadReason> ReadTimes::why_not_read(const ReadTask& task, size_t num_pages) const {
  const auto is_away = [](const PageSource* source) { return source->is_away(); };
  const auto is_needless = [&](const PageSource* source) {
    return source->is_away() || reader_.is_slower_than_computing(*source, task, num_pages);
  };
  if (std::ranges::all_of(reader_.sources(), is_away)) return UnreadReason::store_away;
  if (std::ranges::all_of(reader_.sources(), is_needless)) return UnreadReason::expected_slower;
  return std::nullopt;
}

}  // namespace hocket
