// Sends HTTP/1.1 requests to other servers, and passes each answer on piece by piece as it arrives.
//
//   start() -> kept connection, or a new one -> HttpSink: head, body.., end
//
// Connections are kept for the next call. If a kept connection turns out to be closed, the call is
// made once more over a new one, as long as no byte of an answer has arrived.
// Owns the thread "client", which runs all calls and sinks.   Source: RFC 9112.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cluster/socket.h"
#include "cluster/tls.h"
#include "server/http/http.h"

namespace hocket {

struct HttpCall {
  SocketAddress to;
  std::string method = "POST", target, body;
  HttpHeaders headers;         // besides Host and Content-Length
  Duration max_time{};         // time limit of the whole call; 0: none
  Duration connect_timeout{};  // 0: Options::connect_timeout
  bool is_counted = true;      // false: made even if Options::max_calls are under way
};

// not_connected: nothing was sent. unanswered: a kept connection took the request, and ended before
// the first byte of an answer; no other could be made. broken: the connection or the time ended
// before the answer was complete. cancelled: by cancel(), stop(), or a sink that returned false.
enum class HttpEnd : uint8_t { whole, not_connected, unanswered, broken, cancelled };

// Takes one answer.   Thread: client. It must not block.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // head() and body() return false if the sink wants no more; then the connection is closed.
  virtual bool head(int status, HttpHeaders&& headers) = 0;
  virtual bool body(std::string_view piece) = 0;
  // Called once, as the last. `why`: the reason if it is neither whole nor cancelled, as text.
  virtual void end(HttpEnd how, const std::string& why) = 0;
};

class HttpClient {
 public:
  struct Options {
    size_t max_calls = 1024;             // counted ones under way
    int64_t max_body_bytes = 256 << 20;  // request bodies of all calls together
    size_t max_idle = 16;                // idle connections per address
    Duration connect_timeout = std::chrono::seconds(1);
    Duration write_timeout = std::chrono::seconds(30);  // for each 64 KiB
    Duration max_idle_time = std::chrono::seconds(30);  // time limit of an idle connection
    Duration tick = std::chrono::milliseconds(100);
    std::function<void()> on_tick;  // called on the thread every `tick`; may be empty
    std::string thread_name = "client";
    std::shared_ptr<const TlsContext> tls;  // for all calls; null: without TLS
  };
  explicit HttpClient(Options options);
  ~HttpClient();

  // Returns the call's number; 0 if too much is under way, and then does nothing.   Thread: any.
  uint64_t start(HttpCall call, std::shared_ptr<HttpSink> sink);
  // Ends the call soon; ignores a call that has ended.   Thread: any.
  void cancel(uint64_t call);
  // Returns how many counted calls are under way.   Thread: any.
  size_t num_calls() const;
  // Cancels the calls under way and ends the thread. After it start() returns 0.
  // Thread: any except client.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
