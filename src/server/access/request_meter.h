// Counts the tokens and the end of one request against its principal's limits. It is made when the
// request is let in.
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"

namespace hocket {

// A token bucket: it holds one minute's worth at most, fills evenly, and may be below zero.
struct TokenBucket {
  double level = 0;
  bool fresh = true;  // true: it was never filled, so the first fill makes it full

  void fill(int64_t per_minute, Duration since);
  double seconds_until(double wanted, int64_t per_minute) const;
};

class RequestMeter {
 public:
  // The counts of one principal, for all of its requests (access/rate_limits.h).
  struct Usage {
    Mutex mutex;
    TokenBucket requests HOCKET_GUARDED_BY(mutex);
    TokenBucket tokens HOCKET_GUARDED_BY(mutex);
    TimePoint filled HOCKET_GUARDED_BY(mutex){};
    int64_t num_running HOCKET_GUARDED_BY(mutex) = 0;
  };
  explicit RequestMeter(std::shared_ptr<Usage> usage);
  ~RequestMeter() { end(); }
  RequestMeter(const RequestMeter&) = delete;
  RequestMeter& operator=(const RequestMeter&) = delete;

  void take_tokens(int64_t num_tokens);
  // Ends the request's part in `concurrency`. Tokens may still be taken afterwards.
  void end();

 private:
  const std::shared_ptr<Usage> usage_;
  std::atomic<bool> ended_ = false;
};

}  // namespace hocket
