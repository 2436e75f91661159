// Writes /metrics: Prometheus text, with SGLang's names and labels under the prefix `hocket:`
// (docs/api.md). The engine's numbers are read at each request; the server adds latencies and HTTP
// counts.   Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/messages.h"
#include "server/http/http.h"
#include "server/observe/observer_counts.h"
#include "server/reports/metric_aliases.h"

namespace hocket {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// The facts that a rank knows of ranks in other processes (rank_router.h). Vectors are by rank.
struct ClusterCounts {
  int rank = 0;  // this rank
  uint32_t epoch = 0;
  std::vector<bool> up;
  uint64_t num_lost = 0;
  size_t num_forwards = 0;
  uint64_t num_resumed = 0;  // forwarded requests that were taken back from lost ranks
  std::vector<uint64_t> forwarded, failed;
};

class Metrics {
 public:
  // first_rank: the first rank of this process. compat: the servers whose names are added.
  explicit Metrics(const EngineInfo& info, int first_rank = 0, MetricCompat compat = {});
  ~Metrics();

  // Returns the text. `cluster` is null if all ranks are in this process.
  std::string render(const EngineStats& engine, const HttpCounts& http,
                     const ObserverCounts& observer = {},
                     const ClusterCounts* cluster = nullptr) const;

  // Record the time from arrival to the first token sent, and the time between tokens of one
  // choice.
  void observe_first_token(Duration since_arrival);
  void observe_inter_token(Duration since_last_token);
  // Call it once for each request that ended; records its whole latency and its time in the queue,
  // in prefill and in decode.
  void observe_finished(const RequestSummary& summary);
  // Has the signature of HttpOptions::on_status.
  void count_http(int status);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
