// What the server, its threads and its connections share. Inside of http.h; only http.cc and
// http_connection.cc include it.
#pragma once

// ThreadSanitizer does not understand fences; the locks of Asio's queues order the same accesses.
// This must stand before any header of Asio.
#ifdef __SANITIZE_THREAD__
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/thread.h"
#include "server/wire/http.h"

namespace hocket {

class HttpConnection;

struct HttpCore {
  // One thread and the connections that live on it.
  struct Lane {
    boost::asio::io_context context{1};
    std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work;
    // Its own thread only.
    std::unordered_set<HttpConnection*> connections;
    // waiting: connections that wait for their client, the longest first; if max_connections are
    // open, the first is closed for a new one. spare: connections beyond max_connections, which may
    // ask for probes only, the oldest first.
    std::list<HttpConnection*> waiting, spare;
    Thread thread;
  };

  HttpOptions options;
  HttpHandler handler;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::optional<boost::asio::ip::tcp::acceptor> acceptor;
  std::shared_ptr<boost::asio::ssl::context> tls;  // null: none; under the mutex
  int port = 0;
  std::atomic<bool> draining{false}, closed{false};
  std::atomic<int64_t> num_connections{0}, num_active{0};
  std::atomic<uint64_t> num_accepted{0}, num_refused{0}, num_dropped{0}, num_slow{0};
  std::mutex mutex;
  std::condition_variable fewer;  // connections
  bool stopped = false;
  TimePoint next_tell{};  // of the line accept_failed; read by the acceptor's thread only

  std::shared_ptr<boost::asio::ssl::context> tls_now() {
    std::lock_guard lock(mutex);
    return tls;
  }
  void connection_ended() {
    std::lock_guard lock(mutex);
    --num_connections;
    fewer.notify_all();
  }
  // True once a second: a failed accept is tried again 20 times a second, and not logged as often.
  bool tells_accept_failed(TimePoint now) {
    if (now < next_tell) return false;
    next_tell = now + std::chrono::seconds(1);
    return true;
  }
  void count_status(int status) {
    if (options.on_status) options.on_status(status);
  }
};

// Counts a connection, from accept to its end.
struct EndConnection {
  void operator()(HttpCore* core) const { core->connection_ended(); }
};
using HttpSeat = std::unique_ptr<HttpCore, EndConnection>;

// Counts a request while it lives.
class ActiveRequest {
 public:
  explicit ActiveRequest(std::atomic<int64_t>& num_active) : num_active_(num_active) {
    ++num_active_;
  }
  ~ActiveRequest() { --num_active_; }
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

 private:
  std::atomic<int64_t>& num_active_;
};

// Spare connections of one lane: beyond max_connections, for probes.
inline constexpr size_t kMaxSpare = 64;

// The life of a connection. `core` outlives it; call on the lane's thread.
void start_connection(std::shared_ptr<HttpCore> core, HttpCore::Lane& lane,
                      boost::asio::ip::tcp::socket socket, HttpSeat seat);
void close_if_idle(HttpConnection& connection);
void cut_off(HttpConnection& connection);

}  // namespace hocket
