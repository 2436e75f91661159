// One call of an HttpClient, from start() to its end, with the time limits of its operations.
// Internal to http_client.cc, which sets Asio's macros before it includes this.   Thread: client.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <utility>

#include "server/http/http_client.h"
#include "server/http/http_socket.h"

namespace hocket {

struct HttpClientCall {
  HttpClientCall(uint64_t number, HttpCall&& asked, std::shared_ptr<HttpSink>&& taker,
                 boost::asio::io_context& context)
      : id(number),
        what(std::move(asked)),
        sink(std::move(taker)),
        tcp_socket(context),
        deadline(context),
        whole_deadline(context) {}

  void cut() {
    boost::system::error_code ignored;
    tcp_socket.close(ignored);
    if (socket != nullptr) socket->close();
  }

  const uint64_t id;
  HttpCall what;
  const std::shared_ptr<HttpSink> sink;
  boost::asio::ip::tcp::socket tcp_socket;   // until it is connected
  std::shared_ptr<HttpSocket> socket;        // from then on
  boost::asio::steady_timer deadline;        // for the running operation
  boost::asio::steady_timer whole_deadline;  // for the whole call
  uint64_t turn = 0;  // counts arm() and disarm(): the handler of an older arm() does nothing
  bool cancelled = false;
  std::string timed_out;  // name of the operation that took too long
  std::string why;
};

// Closes the socket if the operation `what` takes longer than `limit`.
inline void arm(const std::shared_ptr<HttpClientCall>& call, Duration limit, const char* what) {
  call->deadline.expires_after(limit);
  call->deadline.async_wait([call, what, turn = ++call->turn](boost::system::error_code code) {
    if (code || turn != call->turn) return;
    call->timed_out = what;
    call->cut();
  });
}

inline void disarm(const std::shared_ptr<HttpClientCall>& call) {
  ++call->turn;
  call->deadline.cancel();
}

}  // namespace hocket
