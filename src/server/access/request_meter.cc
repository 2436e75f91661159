#include "server/access/request_meter.h"

#include <algorithm>

namespace hocket {

void TokenBucket::fill(int64_t per_minute, Duration since) {
  const auto most = static_cast<double>(per_minute);
  level = fresh ? most : std::min(most, level + most / 60 * to_seconds(since));
  fresh = false;
}

double TokenBucket::seconds_until(double wanted, int64_t per_minute) const {
  return std::max(0.0, (wanted - level) * 60 / static_cast<double>(per_minute));
}

RequestMeter::RequestMeter(std::shared_ptr<Usage> usage) : usage_(std::move(usage)) {}

void RequestMeter::end() {
  if (ended_.exchange(true)) return;
  MutexLock lock(usage_->mutex);
  --usage_->num_running;
}

void RequestMeter::take_tokens(int64_t num_tokens) {
  MutexLock lock(usage_->mutex);
  usage_->tokens.level -= static_cast<double>(num_tokens);
}

}  // namespace hocket
