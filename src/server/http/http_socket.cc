#include "server/http/http_socket.h"

// g++ 12 takes the frames of inlined coroutines for mismatched pairs of new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <fmt/format.h>

#include <boost/asio/write.hpp>

#include "server/http/into_code.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr unsigned char kHandshakeRecord = 22;  // RFC 8446 §5.1

}  // namespace

HttpSocket::HttpSocket(Socket socket, std::shared_ptr<asio::ssl::context> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)), deadline_(socket_.get_executor()) {
  if (tls_ != nullptr) stream_.emplace(socket_, *tls_);
}

void HttpSocket::arm(Duration limit) {
  armed_ = true;
  timed_out_ = false;
  deadline_.expires_after(limit);
  deadline_.async_wait([self = shared_from_this(), turn = ++turn_](Code code) {
    if (code || turn != self->turn_) return;
    self->timed_out_ = true;
    self->cancel();
  });
}

void HttpSocket::disarm() {
  ++turn_;
  armed_ = false;
  deadline_.cancel();
}

asio::awaitable<HttpSocket::Handshake> HttpSocket::handshake(Duration limit) {
  if (!stream_) co_return Handshake::done;
  Code code;
  unsigned char first = 0;
  arm(limit);
  co_await socket_.async_receive(asio::buffer(&first, 1), tcp::socket::message_peek, into(code));
  const bool speaks_tls = first == kHandshakeRecord;
  if (!code && speaks_tls)
    co_await stream_->async_handshake(asio::ssl::stream_base::server, into(code));
  disarm();
  if (code) co_return Handshake::failed;
  co_return speaks_tls ? Handshake::done : Handshake::plain;
}

asio::awaitable<HttpSocket::Code> HttpSocket::connect_tls() {
  Code code;
  if (!stream_) co_return code;
  stream_->set_verify_mode(asio::ssl::verify_peer, code);
  if (!code) co_await stream_->async_handshake(asio::ssl::stream_base::client, into(code));
  co_return code;
}

asio::awaitable<bool> HttpSocket::write(std::string_view bytes, Duration limit) {
  Code code;
  arm(limit);
  co_await asio::async_write(*this, asio::buffer(bytes), into(code));
  disarm();
  co_return !code;
}

asio::awaitable<void> HttpSocket::linger(Duration limit) {
  Code code;
  arm(limit);
  if (stream_) co_await stream_->async_shutdown(into(code));
  code = {};
  if (!timed_out_) socket_.shutdown(tcp::socket::shutdown_send, code);
  char bin[4096];
  while (!code && !timed_out_) co_await socket_.async_read_some(asio::buffer(bin), into(code));
  disarm();
}

void HttpSocket::cancel() {
  Code ignored;
  socket_.cancel(ignored);
}

void HttpSocket::close() {
  Code ignored;
  socket_.close(ignored);
}

std::string HttpSocket::peer() const {
  Code ignored;
  const auto peer = socket_.remote_endpoint(ignored);
  return ignored ? "" : fmt::format("{}:{}", peer.address().to_string(), peer.port());
}

}  // namespace hocket
