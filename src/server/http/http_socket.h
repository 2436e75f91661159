// One socket, plain or with TLS. It sends and receives bytes, each wait with a limit. The functions
// at the top are those that Beast and Asio need of a stream. Internal to http_connection.cc and
// http_client.cc.
// Thread: that of the socket's context.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace hocket {

class HttpSocket : public std::enable_shared_from_this<HttpSocket> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Code = boost::system::error_code;
  using executor_type = Socket::executor_type;  // NOLINT(readability-identifier-naming): Asio's

  // Without `tls` the connection is plain.
  HttpSocket(Socket socket, std::shared_ptr<boost::asio::ssl::context> tls);

  executor_type get_executor() { return socket_.get_executor(); }
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Code, size_t)>(
        [this](auto handler, const Buffers& into) {
          if (is_over())
            refuse(std::move(handler), boost::asio::error::operation_aborted);
          else if (at_eof_)
            refuse(std::move(handler), boost::asio::error::eof);
          else if (stream_)
            stream_->async_read_some(into, std::move(handler));
          else
            socket_.async_read_some(into, std::move(handler));
        },
        token, buffers);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Code, size_t)>(
        [this](auto handler, const Buffers& from) {
          if (is_over())
            refuse(std::move(handler), boost::asio::error::operation_aborted);
          else if (stream_)
            stream_->async_write_some(from, std::move(handler));
          else
            socket_.async_write_some(from, std::move(handler));
        },
        token, buffers);
  }

  // Notes that a read reached the end of the client's bytes, so that later reads end at once. The
  // kernel reports the end only once, and Asio would wait for it again.
  void note_eof() { at_eof_ = true; }
  // Calls `handler` when the client has reset the connection, or after cancel().
  template <class Handler>
  void async_wait_reset(Handler&& handler) {
    socket_.async_wait(Socket::wait_error, std::forward<Handler>(handler));
  }

  // After `limit`, cancels the running read or write, and every one that begins before disarm(),
  // since the limit may pass between two of them. Then timed_out() is true.
  void arm(Duration limit);
  void disarm();
  bool timed_out() const { return timed_out_; }

  // plain: the client does not speak TLS, and its bytes have not been read.
  enum class Handshake : uint8_t { done, plain, failed };
  // Makes the TLS handshake; without TLS it does nothing.
  boost::asio::awaitable<Handshake> handshake(Duration limit);
  // Makes it as a client that trusts no certificate: the server must know the key of `tls`.
  boost::asio::awaitable<Code> connect_tls();
  // Reads and writes plain bytes after this call.
  void drop_tls() { stream_.reset(); }
  // Writes all of `bytes` within `limit`. Returns false if they could not be sent.
  boost::asio::awaitable<bool> write(std::string_view bytes, Duration limit);
  // Lets the client read the last bytes: if a socket is closed while it has unread bytes, the
  // client may lose them.
  boost::asio::awaitable<void> linger(Duration limit);

  void cancel();
  void close();
  bool is_open() const { return socket_.is_open(); }
  // Returns "127.0.0.1:41234"; empty if the client has left.
  std::string peer() const;

 private:
  bool is_over() const { return armed_ && timed_out_; }
  template <class Handler>
  void refuse(Handler handler, Code why) {
    boost::asio::post(get_executor(),
                      [why, handler = std::move(handler)]() mutable { handler(why, size_t{0}); });
  }

  Socket socket_;
  std::shared_ptr<boost::asio::ssl::context> tls_;
  std::optional<boost::asio::ssl::stream<Socket&>> stream_;
  boost::asio::steady_timer deadline_;
  uint64_t turn_ = 0;  // counts arm() and disarm(): the handler of an older arm() does nothing
  bool armed_ = false, timed_out_ = false, at_eof_ = false;
};

}  // namespace hocket
