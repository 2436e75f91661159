// HTTP/1.1 on TCP: connections, limits and time-outs, plain answers and streams. Knows no routes,
// no APIs and no clients: the owner of the server gives the format of errors, and the check that
// lets requests in names their senders. Beast stays inside http_reader and http_client.
//
//   socket -> head -> key -> body -> Handler -> HttpExchange: respond
//                                                 | start_stream, write..., finish
//
// A connection answers one request at a time; pipelined requests wait in at most 64 KiB.
// Source: RFC 9110, RFC 9112.
#pragma once

#include <array>
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
#include "core/named_counter.h"
#include "server/http/tls_identity.h"

namespace hocket {

class HeldBytes;
class MemoryBudget;
class RequestMemory;

// The sender of a request. The room that decides who may ask derives its own from this; HTTP only
// carries it.
struct HttpSender {};

inline constexpr std::string_view kJsonType = "application/json";  // the content type

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET", "POST", ...; HEAD arrives as GET, its body is dropped on the wire
  std::string path;    // percent-decoded, valid UTF-8, begins with '/'
  std::string query;   // after the '?', as sent
  HttpHeaders headers;
  std::string body;
  std::string client;                        // "127.0.0.1:41234"
  std::shared_ptr<const HttpSender> sender;  // null until it is let in
  std::shared_ptr<RequestMemory> memory;     // counts its bytes and its answer's; null: not counted
  std::shared_ptr<HeldBytes> held_body;      // the part of `memory` that its body takes

  // Returns the first header of that name, in any case; empty if there is none.
  std::string_view header(std::string_view name) const;
};

// The format in which an API writes errors; the record of the API has it.
struct ErrorFormat {
  std::string (*body)(const Error&);    // JSON
  std::string (*events)(const Error&);  // the last bytes of a stream that fails
};

// The answer to one request: either respond() once, or start_stream(), any number of write() and
// finish(). The connection stays open while anything holds the exchange. If the last holder drops
// it without a complete answer, it answers 500 or, in a stream, closes the connection.
// Thread: any, also several; nothing here blocks.
class HttpExchange {
 public:
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // Returns false if the client has left. If requests hold all memory that they may, the client
  // gets that error instead.
  bool respond(int status, std::string_view content_type, std::string_view body,
               const HttpHeaders& extra = {});
  // Sends 200 and the head at once. A quiet text/event-stream gets `: ping` comments, so in such a
  // stream each write() must carry whole events. Returns false if the client has left, or asked for
  // the head only.
  bool start_stream(std::string_view content_type, const HttpHeaders& extra = {});
  // Returns false if the stream has ended, or ends with this write. A stream ends
  // - if the client has left;
  // - if more bytes wait for a slow client than max_buffered_bytes and the largest write: then the
  //   connection is closed;
  // - if requests hold all memory that they may: then the last event says so, and a stream without
  //   events is closed.
  bool write(std::string_view bytes);
  // Ends the stream with `last`, some 16 KiB at most. The request is no longer under way before the
  // client can read these bytes.
  bool finish(std::string_view last = {});

  // Call it if the answer only confirms that the request was accepted. Then the request stays under
  // way after the answer: HttpAdmission::on_end is not called, and the code that works on the
  // request ends what it counts.
  void outlive_answer();

  // `left` is called once if the client leaves before respond() or finish(): on an http thread, or
  // inside this call if it has left already. It must not block. A client that closes only its
  // sending side has not left, unless it speaks HTTP/1.0.
  void on_close(std::function<void()> on_closed);
  bool is_closed() const;
  bool has_begun() const;      // respond() or start_stream() was called
  bool is_streaming() const;   // between start_stream() and finish()
  size_t num_waiting() const;  // bytes that are written and not sent

  // Returns the error format of the path that the client asked for.
  const ErrorFormat& error_format() const;

 private:
  friend class HttpConnection;
  struct State;
  explicit HttpExchange(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// The decision to let a request in or not, made when its head is known.
struct HttpAdmission {
  std::shared_ptr<const HttpSender> sender;
  // Called once before the client can see the end of its answer, or when it has left. It must not
  // block or throw. Null: nothing is called. A request whose body is refused drops it uncalled, so
  // the objects that it holds must end by themselves.
  std::function<void()> on_end;
  // Requests with the same owner share a limit of memory. Empty: the request has no such limit.
  std::string memory_owner;
  HttpHeaders headers;           // added to the answer, also to a refusal
  std::optional<Error> refusal;  // nullopt: the request is let in
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free port, which HttpServer::port() returns
  int num_threads = 1;
  std::string thread_name = "http";  // http0, http1, ...
  // Called for each head before its body is read, on an http thread. Null: every request is let in.
  std::function<HttpAdmission(const HttpRequest&)> admit;
  // Counts the memory of each request that was let in, its body and its answer. Null: not counted.
  std::shared_ptr<MemoryBudget> memory_budget;
  TlsFiles tls;
  // TLS with the cluster's key in place of certificates: only its members can connect.
  std::shared_ptr<const TlsContext> cluster_tls;
  // If this many are open, a new connection replaces the one that has waited longest for its
  // client. If none waits, the new one gets 503, unless it asks for one of `probes`.
  int max_connections = 4096;
  std::vector<std::string> probes;  // paths
  // Returns the format in which errors of a path are written; an empty path: that of requests whose
  // head could not be read. Never null.
  const ErrorFormat& (*error_format_of)(std::string_view path) = nullptr;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 32 << 20;
  int64_t max_buffered_bytes = 1 << 20;                // bytes that wait in one stream
  Duration idle_timeout = std::chrono::seconds(75);    // between requests
  Duration header_timeout = std::chrono::seconds(10);  // for a whole head, from its first byte
  Duration body_timeout = std::chrono::seconds(60);    // for a whole body
  Duration write_timeout = std::chrono::seconds(30);   // for each 64 KiB
  int64_t min_bytes_per_s = 64 << 10;  // beyond write_timeout, all that waits needs this rate
  Duration ping_interval = std::chrono::seconds(15);
  // The server calls it once per request with its status, on an http thread; 499 for a client that
  // left.
  std::function<void(int status)> on_status;
};

// Counts since the start. A new one is a member and its row, and the code that counts it.
struct HttpCounters {
  uint64_t num_accepted_total = 0;
  uint64_t num_refused_total = 0;         // over max_connections
  uint64_t num_dropped_total = 0;         // idle connections that were closed for new ones
  uint64_t num_slow_total = 0;            // streams that were closed because the client was slow
  uint64_t num_memory_refused_total = 0;  // HttpOptions::memory_budget had no room
};

inline constexpr auto kHttpCounters = std::to_array<NamedCounter<HttpCounters>>(
    {{&HttpCounters::num_accepted_total, "http_connections_total", "Connections accepted"},
     {&HttpCounters::num_refused_total, "http_refused_connections_total",
      "Connections over the limit"},
     {&HttpCounters::num_dropped_total, "http_dropped_connections_total",
      "Idle connections that were closed to make room for a new one"},
     {&HttpCounters::num_slow_total, "http_slow_clients_total",
      "Streams dropped because the client read too slowly"},
     {&HttpCounters::num_memory_refused_total, "request_memory_refused_total",
      "Requests refused because they would exceed a limit of this memory"}});
static_assert(names_each_member(kHttpCounters));

struct HttpCounts : HttpCounters {
  int64_t num_connections = 0;
  int64_t num_active = 0;  // requests being answered
  // Sizes of HttpOptions::memory_budget.
  int64_t memory_bytes = 0, peak_memory_bytes = 0, memory_limit_bytes = 0;
};

// Called on an http thread when a request is complete. It must not block: pass the work on.
using HttpHandler = std::function<void(HttpRequest&&, std::shared_ptr<HttpExchange>)>;

struct HttpCore;

// Owns the threads http0, http1, ...   Thread: any except those.
class HttpServer {
 public:
  // Listens and starts. Errors: port_in_use with a fix; bad_value (host, TLS); io.
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, HttpHandler handler);
  // Calls stop() with a patience of 0.
  ~HttpServer();

  int port() const;
  HttpCounts counts() const;
  // Reads certificate and key again; later connections use them. On an error the old ones stay.
  Result<void> reload_tls();

  // After it each answer ends its connection, and idle connections are closed; new connections are
  // still accepted.
  void begin_drain();
  // Calls begin_drain() and refuses new connections. Waits until the listening socket is closed.
  void stop_accepting();
  // Calls stop_accepting(), waits up to `patience` for the running answers, closes the connections
  // of the rest (their on_close is called) and ends the threads. Returns true if none was cut off.
  bool stop(Duration patience);

 private:
  explicit HttpServer(std::shared_ptr<HttpCore> core);
  std::shared_ptr<HttpCore> core_;
};

}  // namespace hocket
