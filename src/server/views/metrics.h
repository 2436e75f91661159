// What /metrics says: Prometheus text, SGLang's names and labels under the prefix `hocket:`
// (docs/api.md). The engine's numbers are read when asked for; the server adds latencies and HTTP
// counts. Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/messages.h"
#include "server/observe/observer_counts.h"
#include "server/views/metric_aliases.h"
#include "server/wire/http.h"

namespace hocket {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// What a rank of several processes sees of the others (front_door.h). Vectors by rank.
struct ClusterCounts {
  int rank = 0;  // this one
  uint32_t epoch = 0;
  std::vector<bool> up;
  uint64_t num_lost = 0;
  size_t num_forwards = 0;
  std::vector<uint64_t> forwarded, failed;
};

class Metrics {
 public:
  // first_rank: of those in this process. compat: whose names to tell besides.
  explicit Metrics(const EngineInfo& info, int first_rank = 0, MetricCompat compat = {});
  ~Metrics();

  // `cluster`: null where all ranks are in this process.
  std::string render(const EngineStats& engine, const HttpCounts& http,
                     const ObserverCounts& observer = {},
                     const ClusterCounts* cluster = nullptr) const;

  // From arrival to the first token sent, and between tokens sent of one choice.
  void observe_first_token(Duration since_arrival);
  void observe_inter_token(Duration since_last_token);
  // Once for each request that ended: the whole latency, time in the queue, in prefill and in
  // decode.
  void observe_finished(const RequestSummary& summary);
  // Fits HttpOptions::on_status.
  void count_http(int status);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
