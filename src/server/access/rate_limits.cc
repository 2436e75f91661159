#include "server/access/rate_limits.h"

#include <algorithm>
#include <cmath>

#include "server/http/retry_after.h"

namespace hocket {

namespace {

void add_limit_headers(HttpHeaders& headers, std::string_view kind, int64_t limit,
                       double remaining) {
  headers.emplace_back(fmt::format("x-ratelimit-limit-{}", kind), std::to_string(limit));
  headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", kind),
                       std::to_string(std::max<int64_t>(0, static_cast<int64_t>(remaining))));
}

void add_limit_headers(HttpHeaders& headers, std::string_view kind, int64_t limit,
                       const TokenBucket& bucket) {
  add_limit_headers(headers, kind, limit, bucket.level);
  headers.emplace_back(
      fmt::format("x-ratelimit-reset-{}", kind),
      fmt::format("{:.3f}s", bucket.seconds_until(static_cast<double>(limit), limit)));
}

Error too_much(const Principal& who, int64_t limit, std::string_view what) {
  return error(ErrorCode::rate_limited, "{} may use {} {}", who.name, limit, what)
      .with_fix(kRetryAfterFix);
}

}  // namespace

RateLimits::Admission RateLimits::begin(const Principal& who) {
  Admission out;
  const KeyLimits& limits = who.limits;
  if (limits == KeyLimits{}) return out;
  std::shared_ptr<RequestMeter::Usage> usage;
  {
    MutexLock lock(mutex_);
    auto& known = usages_[who.name];
    if (known == nullptr) known = std::make_shared<RequestMeter::Usage>();
    usage = known;
  }
  MutexLock lock(usage->mutex);
  const TimePoint now = clock_->now();
  const Duration since = now - usage->filled;
  usage->filled = now;
  double wait = 0;
  if (limits.requests_per_minute > 0) {
    usage->requests.fill(limits.requests_per_minute, since);
    wait = usage->requests.seconds_until(1, limits.requests_per_minute);
    if (wait > 0) out.refusal = too_much(who, limits.requests_per_minute, "requests a minute");
  }
  if (limits.tokens_per_minute > 0) {
    usage->tokens.fill(limits.tokens_per_minute, since);
    const double longer = usage->tokens.seconds_until(1, limits.tokens_per_minute);
    if (longer > wait) {
      wait = longer;
      out.refusal = too_much(who, limits.tokens_per_minute, "tokens a minute");
    }
  }
  if (!out.refusal && limits.concurrency > 0 && usage->num_running >= limits.concurrency) {
    wait = 1;
    out.refusal = too_much(who, limits.concurrency, "requests at once");
  }
  if (!out.refusal) {
    usage->requests.level -= 1;
    ++usage->num_running;
  }
  if (limits.requests_per_minute > 0)
    add_limit_headers(out.headers, "requests", limits.requests_per_minute, usage->requests);
  if (limits.tokens_per_minute > 0)
    add_limit_headers(out.headers, "tokens", limits.tokens_per_minute, usage->tokens);
  if (limits.concurrency > 0)
    add_limit_headers(out.headers, "concurrency", limits.concurrency,
                      static_cast<double>(limits.concurrency - usage->num_running));
  lock.unlock();
  if (out.refusal)
    out.headers.emplace_back("Retry-After",
                             std::to_string(std::max(1, static_cast<int>(std::ceil(wait)))));
  else
    out.meter = std::make_shared<RequestMeter>(std::move(usage));
  return out;
}

}  // namespace hocket
