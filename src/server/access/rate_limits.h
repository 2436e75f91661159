// The limits of each principal: requests and tokens per minute, and requests under way at once.
//
// Requests and tokens are token buckets that hold one minute's worth and fill evenly. A request
// takes 1 from the bucket of requests when it begins. Its tokens are taken as they are computed, so
// that bucket may go below zero, and the next request is refused until it holds 1 again. The counts
// survive when the key file is read again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/access/principal.h"
#include "server/access/request_meter.h"
#include "server/http/http.h"

namespace hocket {

class RateLimits {
 public:
  explicit RateLimits(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  struct Admission {
    std::shared_ptr<RequestMeter> meter;  // null if refused or without limits
    std::optional<Error> refusal;         // if set: ErrorCode::rate_limited
    HttpHeaders headers;                  // x-ratelimit-*, and Retry-After with a refusal
  };
  // Counts one more request of `who`; it is under way until its meter ends.   Thread: any.
  Admission begin(const Principal& who);

 private:
  std::shared_ptr<const Clock> clock_;
  Mutex mutex_;
  // Usage by the principal's name. None is removed, so there is one for each name that a key
  // file had.
  std::unordered_map<std::string, std::shared_ptr<RequestMeter::Usage>> usages_
      HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
