// How much each principal may ask: requests and tokens a minute, requests under way at once.
//
// Requests and tokens are buckets that hold a minute's worth and fill evenly. A request takes one
// request at once; its tokens are taken as they are computed, so a bucket may go below zero, and
// the next request waits until there is one again. What a principal has used outlives a new reading
// of the key file.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "server/access/principal.h"
#include "server/access/request_meter.h"
#include "server/wire/http.h"

namespace hocket {

class RateLimits {
 public:
  explicit RateLimits(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  struct Admission {
    std::shared_ptr<RequestMeter> meter;  // null where it is refused, or nothing is limited
    std::optional<Error> refusal;         // rate_limited
    HttpHeaders headers;                  // x-ratelimit-*, and with a refusal Retry-After
  };
  // One more request, under way until its meter ends.
  // Thread: any.
  Admission begin(const Principal& who);

 private:
  std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  // By name; never forgotten, and as many as there are names in key files.
  std::unordered_map<std::string, std::shared_ptr<RequestMeter::Account>> accounts_;
};

}  // namespace hocket
