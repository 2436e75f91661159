// Writes the log of requests, the dump and traces. The threads that serve a request leave notes
// here; the thread "observe" does the rest, so that neither the engine nor an answer waits for a
// disk, a terminal or a collector.
//
//   RequestRecorder -> inbox (bounded) -> observe: log lines, spans to the collector, the dump's
//   file
//
// The Server owns the object.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "core/server_settings.h"
#include "server/generation/api.h"
#include "server/http/http.h"
#include "server/http/json_body.h"
#include "server/observe/observer_counts.h"
#include "server/observe/request_dump.h"
#include "server/observe/request_log.h"
#include "server/observe/request_recorder.h"
#include "server/observe/span_sender.h"

namespace hocket {

class Observer {
 public:
  struct Options {
    ObserveSettings settings;
    std::string model;     // the served name
    std::string instance;  // the name of this server, "h0:30000"
    // Returns the dump's description of the scheduler; called when a dump begins.
    std::function<Json()> scheduler;
  };
  // Errors: bad_value (a level, an endpoint), io (the dump's folder).
  static Result<std::unique_ptr<Observer>> create(Options options);
  ~Observer();

  // Begins to record a request of an API; api: null if none answers it. Returns null if nothing is
  // observed.   Thread: any.
  std::shared_ptr<RequestRecorder> begin(const HttpRequest& request, const Api* api,
                                         TimePoint arrived);
  // Handles POST /configure_logging: changes what is logged and dumped from then on, and returns
  // all settings. Errors: invalid_request, naming the field.   Thread: any.
  Result<Json> configure(const Json& body);
  ObserverCounts counts() const;
  // Writes the notes that are left, sends spans for at most two seconds, and ends the thread. Call
  // it after the last recorder is destroyed.
  void stop();

 private:
  explicit Observer(Options options);
  void run();
  void take(const RequestNote& note);
  void take_or_lose(const RequestNote& note);
  Result<void> set_dump(const std::string& folder, int64_t requests_of_file);
  Json settings_json() const;

  const Options options_;
  ObserverInbox inbox_;
  std::atomic<bool> logs_{false}, dumps_{false};
  std::atomic<RequestLogLevel> level_{RequestLogLevel::sampling};
  std::unique_ptr<SpanSender> spans_;  // null: nothing is traced
  DumpCounts dump_counts_;
  mutable Mutex mutex_;
  std::unique_ptr<RequestDump> dump_ HOCKET_GUARDED_BY(mutex_);  // null: nothing is dumped
  std::string dump_folder_ HOCKET_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace hocket
