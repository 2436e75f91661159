// HTTP/1.1 on TCP: connections, limits and time-outs, plain answers and streams. Knows no route and
// no JSON but its own error bodies. Beast stays inside http_connection.cc.
//
//   socket -> head -> key -> body -> Handler -> HttpExchange: respond | start_stream, write...,
//   finish
//
// One request of a connection is answered at a time; pipelined ones wait their turn in at most 64
// KiB. Source: RFC 9110, RFC 9112.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/access/principal.h"
#include "server/wire/tls_identity.h"

namespace hocket {

class HeldBytes;
class RequestAccounts;
class RequestMemory;
class RequestMeter;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET", "POST", ...; HEAD arrives as GET, its body is dropped on the wire
  std::string path;    // percent-decoded, valid UTF-8, begins with '/'
  std::string query;   // after the '?', as sent
  HttpHeaders headers;
  std::string body;
  std::string client;      // "127.0.0.1:41234"
  PrincipalPtr principal;  // whose key it carries; null only in requests that no server took
  std::shared_ptr<RequestMeter> meter;    // told of the tokens; null: not counted
  std::shared_ptr<RequestMemory> memory;  // what it and its answer hold; null: not counted
  std::shared_ptr<HeldBytes> held_body;   // the body's part of that
  bool from_rank = false;                 // it came through the port for ranks (the handler's word)

  // The first header of that name, in any case; empty when there is none.
  std::string_view header(std::string_view name) const;
  // The principal's name, "anonymous" where there is none.
  std::string_view who() const;
};

// How an API says errors (error_map.h).
enum class ErrorForm : uint8_t { openai, responses, anthropic };

// The answer to one request: either respond() once, or start_stream(), any number of write() and
// finish(). Keeps the connection alive while anybody holds it; dropped without a complete answer,
// it answers 500 or, in a stream, cuts the connection. Thread: any, also several; nothing here
// blocks.
class HttpExchange {
 public:
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // False when the client has left. If requests hold all the memory that they may, the client gets
  // that error instead.
  bool respond(int status, std::string_view content_type, std::string_view body,
               const HttpHeaders& extra = {});
  // 200 and the head, sent at once. A quiet text/event-stream gets `: ping` comments, so there each
  // write() carries whole events. False when the client has left, or has asked for the head alone.
  bool start_stream(std::string_view content_type, const HttpHeaders& extra = {});
  // False when the stream has ended, or ends with this write. A stream ends when the client has
  // left; when more bytes wait for a slow client than max_buffered_bytes and the largest write, and
  // the connection is cut; or when requests hold all the memory that they may: then the last event
  // says so, and a stream that has no events is cut.
  bool write(std::string_view bytes);
  bool finish();

  // The answer only confirms that the request was accepted. So the request still counts as under
  // way after it, until whoever holds the meter ends that.
  void leave_meter();

  // `left` is called once if the client leaves before respond() or finish(): on an http thread, or
  // here at once if it has left already. It must not block. A client that closes only its sending
  // side has not left, but one of HTTP/1.0 has.
  void on_close(std::function<void()> left);
  bool is_closed() const;
  bool has_begun() const;     // respond() or start_stream() was called
  bool is_streaming() const;  // between start_stream() and finish()

  // What its client reads, by the path it asked for.
  ErrorForm error_form() const;

 private:
  friend class HttpConnection;
  struct State;
  explicit HttpExchange(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// The decision whether a request is let in, made when its head is known.
struct HttpAdmission {
  PrincipalPtr principal;
  std::shared_ptr<RequestMeter> meter;  // kept until the answer is whole
  HttpHeaders headers;                  // added to its answer, also to a refusal
  std::optional<Error> refusal;         // nullopt: the request is let in
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one; HttpServer::port() tells which
  int num_threads = 1;
  std::string thread_name = "http";  // http0, http1, ...
  // Asked of each head before its body is read, on an http thread. Null: everybody is let in.
  std::function<HttpAdmission(const HttpRequest&)> admit;
  // Memory of each request that was let in, its body and its answer, is counted here. Null: not
  // counted.
  std::shared_ptr<RequestAccounts> accounts;
  TlsFiles tls;
  // If so many are open, a new connection replaces the one that has waited the longest for its
  // client. If none waits, the new one gets 503, unless it asks for one of `probes`.
  int max_connections = 4096;
  std::vector<std::string> probes;  // paths
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 32 << 20;
  int64_t max_buffered_bytes = 1 << 20;                // of one stream
  Duration idle_timeout = std::chrono::seconds(75);    // between requests
  Duration header_timeout = std::chrono::seconds(10);  // of a whole head, from its first byte
  Duration body_timeout = std::chrono::seconds(60);    // of a whole body
  Duration write_timeout = std::chrono::seconds(30);   // for 64 KiB to leave
  int64_t min_bytes_per_s = 64 << 10;  // of all that waits, once write_timeout has passed
  Duration ping_interval = std::chrono::seconds(15);
  // Told the status of each request once, on an http thread; 499 for a client that left.
  std::function<void(int status)> on_status;
};

struct HttpCounts {
  int64_t num_connections = 0;
  int64_t num_active = 0;  // requests being answered
  uint64_t num_accepted_total = 0;
  uint64_t num_refused_total = 0;  // over max_connections
  uint64_t num_dropped_total = 0;  // while they waited for their client, to make room for a new one
  uint64_t num_slow_total = 0;     // streams dropped for their slowness
  // Of HttpOptions::accounts.
  int64_t memory_bytes = 0, most_memory_bytes = 0, memory_limit_bytes = 0;
  uint64_t num_memory_refused_total = 0;
};

// Called on an http thread once a request is complete. It must not block: hand the work over.
using HttpHandler = std::function<void(HttpRequest&&, std::shared_ptr<HttpExchange>)>;

struct HttpCore;

// Owns the threads http0, http1, ...   Thread: any but those.
class HttpServer {
 public:
  // Listens and starts. Errors: port_in_use with a fix; bad_value (host, TLS); io.
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, HttpHandler handler);
  // stop() without patience.
  ~HttpServer();

  int port() const;
  HttpCounts counts() const;
  // Reads certificate and key again, for connections from now on. On an error those of before stay.
  Result<void> reload_tls();

  // From now on each answer ends its connection, and idle connections are closed; new ones are
  // taken.
  void begin_drain();
  // begin_drain(), and new connections are refused. Waits until the listening socket is closed.
  void stop_accepting();
  // stop_accepting(), waits up to `patience` for the running answers, cuts the rest off (their
  // on_close is called) and ends the threads. True when none was cut off.
  bool stop(Duration patience);

 private:
  explicit HttpServer(std::shared_ptr<HttpCore> core);
  std::shared_ptr<HttpCore> core_;
};

}  // namespace hocket
