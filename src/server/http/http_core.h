// Data that the server, its threads and its connections share. Internal to http.h; only http.cc and
// http_connection.cc include it.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <list>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "server/http/http.h"

namespace hocket {

class HttpConnection;

struct HttpCore {
  // One event loop: an http thread and its connections.
  struct Loop {
    boost::asio::io_context context{1};
    std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work;
    // Only the loop's thread uses it.
    std::unordered_set<HttpConnection*> connections;
    // waiting: connections that wait for their client, the longest wait first; if max_connections
    // are open, the first one is closed for a new one. spare: connections beyond max_connections,
    // which may ask for probes only, the oldest first.
    std::list<HttpConnection*> waiting, spare;
    Thread thread;
  };

  HttpOptions options;
  HttpHandler handler;
  std::vector<std::unique_ptr<Loop>> loops;
  std::optional<boost::asio::ip::tcp::acceptor> acceptor;
  int port = 0;
  std::atomic<bool> draining{false}, closed{false};
  std::atomic<int64_t> num_connections{0}, num_active{0};
  AtomicCounts<HttpCounters> counts;  // without those of the memory budget
  Mutex mutex;
  std::condition_variable fewer;  // notified when a connection ends
  std::shared_ptr<boost::asio::ssl::context> tls HOCKET_GUARDED_BY(mutex);  // null: no TLS
  bool stopped HOCKET_GUARDED_BY(mutex) = false;
  TimePoint
      next_accept_log{};  // next time to log accept_failed; used by the acceptor's thread only

  std::shared_ptr<boost::asio::ssl::context> tls_now() {
    MutexLock lock(mutex);
    return tls;
  }
  void connection_ended() {
    MutexLock lock(mutex);
    --num_connections;
    fewer.notify_all();
  }
  // Returns true once per second: a failed accept is tried 20 times a second, but logged less
  // often.
  bool may_log_accept_failed(TimePoint now) {
    if (now < next_accept_log) return false;
    next_accept_log = now + std::chrono::seconds(1);
    return true;
  }
  void count_status(int status) {
    if (options.on_status) options.on_status(status);
  }
};

// Counts a connection down when it ends. ConnectionCount lives from accept to the end of the
// connection.
struct EndConnection {
  void operator()(HttpCore* core) const { core->connection_ended(); }
};
using ConnectionCount = std::unique_ptr<HttpCore, EndConnection>;

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

// Limit of spare connections of one loop (beyond max_connections, for probes).
inline constexpr size_t kMaxSpare = 64;

// start_connection() begins a connection, the others end it. `core` must outlive it. Call them on
// the loop's thread.
void start_connection(std::shared_ptr<HttpCore> core, HttpCore::Loop& loop,
                      boost::asio::ip::tcp::socket socket, ConnectionCount count);
void close_if_idle(HttpConnection& connection);
void cut_off(HttpConnection& connection);

}  // namespace hocket
