// HTTP/1.1 to the other ranks: asks, and gives the answer on piece by piece as it comes.
//
//   start() -> kept connection, or a new one -> HttpSink: head, body.., end
//
// Connections are kept for the next call. One that had ended unnoticed costs nothing: as long as no
// byte of an answer has come, the call is made once more over a new one.
// Owns the thread "forward", which runs all calls and sinks.   Source: RFC 9112.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cluster/socket.h"
#include "server/wire/http.h"

namespace hocket {

struct HttpCall {
  SocketAddress to;
  std::string method = "POST", target, body;
  HttpHeaders headers;  // besides Host and Content-Length
  Duration most{};      // for the whole of it; 0: as long as it takes
};

// not_connected: nothing was sent. broken: the connection ended, or the time, before the answer was
// whole. cancelled: by cancel(), stop() or a sink that wants no more.
enum class HttpEnd : uint8_t { whole, not_connected, broken, cancelled };

// Who takes an answer.   Thread: forward. It must not block.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // False: no more is wanted, the connection is closed.
  virtual bool head(int status, HttpHeaders&& headers) = 0;
  virtual bool body(std::string_view piece) = 0;
  // Once, and last. `why`: of broken and not_connected, for people.
  virtual void end(HttpEnd how, const std::string& why) = 0;
};

class HttpClient {
 public:
  struct Options {
    size_t max_calls = 1024;             // under way
    int64_t max_body_bytes = 256 << 20;  // that they send, together
    size_t max_kept = 16;                // connections without a call, to one address
    Duration connect_timeout = std::chrono::seconds(1);
    Duration write_timeout = std::chrono::seconds(30);  // for 64 KiB to leave
    Duration keep = std::chrono::seconds(30);           // without a call
    Duration tick = std::chrono::milliseconds(100);
    std::function<void()> on_tick;  // on the thread, every `tick`; may be empty
    std::string thread_name = "forward";
  };
  explicit HttpClient(Options options);
  ~HttpClient();

  // The call's number; 0, and nothing done, when too much is under way. Thread: any.
  uint64_t start(HttpCall call, std::shared_ptr<HttpSink> sink);
  // Ends it soon; one that has ended is passed over.   Thread: any.
  void cancel(uint64_t call);
  size_t num_calls() const;
  uint64_t num_connections_total() const;
  // Cancels what is under way and ends the thread. After it start() gives 0. Thread: any but
  // forward.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
