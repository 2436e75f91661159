// Sends spans to a collector in batches, one batch at a time. A batch that cannot be delivered is
// tried again for some seconds, then dropped and counted, so that no thread waits for a collector.
//
//   add() -> spans (bounded) -> batch -> POST endpoint -> 2xx: sent | else: again later | dropped
//
// Thread: the observer's, except for the counts.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/http/http_client.h"
#include "server/observe/otlp.h"

namespace hocket {

// The place that spans are sent to. `path` is sent unchanged.
struct Collector {
  HostPort address;
  std::string path;
};
// Parses a URL like "http://localhost:4318/v1/traces", whose path and port are the defaults.
// Errors: bad_value; for https it says what to use instead.
Result<Collector> parse_collector(std::string_view url);

class SpanSender {
 public:
  struct Options {
    std::string endpoint, model, instance;
    size_t max_spans = 16384;  // largest number of spans that wait
    size_t batch_spans = 512;
    Duration batch_wait = std::chrono::seconds(1);  // longest wait of a batch's first span
    Duration first_retry = std::chrono::seconds(1);
    int max_tries = 4;
  };
  // Errors: those of parse_collector.
  static Result<std::unique_ptr<SpanSender>> create(Options options);
  ~SpanSender();

  void add(const RequestRecord& record);
  // Sends a batch if it is due, and takes the result of the last one. Call it a few times per
  // second.
  void tick();
  // Sends all spans that wait, for at most `patience`.
  void finish(Duration patience);

  uint64_t num_sent() const { return num_sent_; }  // Thread: any
  uint64_t num_lost() const { return num_lost_; }  // Thread: any

 private:
  struct Delivery;  // the result of one call

  SpanSender(Options options, Collector collector);
  void send();
  void settle();
  void lose(size_t num_spans, const std::string& why);

  const Options options_;
  const Collector collector_;
  const SpanSource source_;
  std::deque<std::string> waiting_;
  TimePoint first_waits_{};         // when the oldest of `waiting_` was added
  std::vector<std::string> batch_;  // in flight, or to be tried again
  std::shared_ptr<Delivery> under_way_;
  int tries_ = 0;
  TimePoint next_try_{}, complained_{};
  bool finishing_ = false;
  std::atomic<uint64_t> num_sent_{0}, num_lost_{0};
  HttpClient client_;
};

}  // namespace hocket
