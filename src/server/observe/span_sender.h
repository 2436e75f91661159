// Takes spans to a collector in batches, one at a time. What cannot be delivered is tried again for
// some seconds, then dropped and counted: nothing waits for a collector.
//
//   add() -> spans (bounded) -> batch -> POST endpoint -> 2xx: sent | else: again later | dropped
//
// Thread: the observer's, but for the counts.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/observe/otlp.h"
#include "server/wire/http_client.h"

namespace hocket {

// Where spans go. `path` is sent as it is.
struct Collector {
  HostPort address;
  std::string path;
};
// "http://localhost:4318/v1/traces"; without a path that one, without a port 4318. Errors:
// bad_value, for https with what to do instead.
Result<Collector> parse_collector(std::string_view url);

class SpanSender {
 public:
  struct Options {
    std::string endpoint, model, instance;
    size_t max_spans = 16384;  // that wait
    size_t batch_spans = 512;
    Duration batch_wait = std::chrono::seconds(1);  // of the first span of a batch
    Duration first_retry = std::chrono::seconds(1);
    int max_tries = 4;
  };
  // Errors: those of parse_collector.
  static Result<std::unique_ptr<SpanSender>> create(Options options);
  ~SpanSender();

  void add(const RequestRecord& record);
  // Sends what is due, and looks what became of what was sent. A few times a second.
  void tick();
  // Sends all that waits, for so long at most.
  void finish(Duration patience);

  uint64_t num_sent() const { return num_sent_; }  // Thread: any
  uint64_t num_lost() const { return num_lost_; }  // Thread: any

 private:
  struct Delivery;  // what became of a call

  SpanSender(Options options, Collector collector);
  void send();
  void settle();
  void lose(size_t num_spans, const std::string& why);

  const Options options_;
  const Collector collector_;
  const SpanSource source_;
  std::deque<std::string> waiting_;
  TimePoint first_waits_{};         // since when the oldest of `waiting_`
  std::vector<std::string> batch_;  // on its way, or to be tried again
  std::shared_ptr<Delivery> under_way_;
  int tries_ = 0;
  TimePoint next_try_{}, complained_{};
  bool finishing_ = false;
  std::atomic<uint64_t> num_sent_{0}, num_lost_{0};
  HttpClient client_;
};

}  // namespace hocket
