// What the server, its threads and its connections share. Inside of http.h; only http.cc and
// http_connection.cc include it.
#pragma once

// ThreadSanitizer knows no fences; Asio's queues have locks that say the same. Before any of Asio.
#ifdef __SANITIZE_THREAD__
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
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
    std::unordered_set<HttpConnection*> connections;  // its own thread only
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
  std::atomic<uint64_t> num_accepted{0}, num_refused{0}, num_slow{0};
  std::mutex mutex;
  std::condition_variable fewer;  // connections
  bool stopped = false;

  std::shared_ptr<boost::asio::ssl::context> tls_now() {
    std::lock_guard lock(mutex);
    return tls;
  }
  void connection_ended() {
    std::lock_guard lock(mutex);
    --num_connections;
    fewer.notify_all();
  }
  void count_status(int status) {
    if (options.on_status) options.on_status(status);
  }
};

// The life of a connection. `core` outlives it; call on the lane's thread.
enum class Welcome : uint8_t { serve, refuse };  // refuse: answer 503 and close
void start_connection(std::shared_ptr<HttpCore> core, HttpCore::Lane& lane,
                      boost::asio::ip::tcp::socket socket, Welcome welcome);
void close_if_idle(HttpConnection& connection);
void cut_off(HttpConnection& connection);

}  // namespace hocket
