// Reads the requests of one connection from its socket: heads, then bodies. Each read, each list
// and each wait has a limit. Beast's parser stays inside http_reader.cc.
//
// The connection owns it.   Thread: the connection's.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>

#include "server/http/http_exchange.h"
#include "server/http/http_socket.h"
#include "server/http/request_head.h"

namespace hocket {

class HttpReader {
 public:
  HttpReader(std::shared_ptr<HttpSocket> socket, const HttpOptions& options);
  ~HttpReader();

  // Waits for bytes of the next request. Returns false if none arrived within `limit`, or the
  // client left.
  boost::asio::awaitable<bool> wait(Duration limit);
  // Reads a request without its body, within `limit`, and sets the framing of its answer.
  boost::asio::awaitable<std::optional<Refusal>> read_head(HttpRequest& request,
                                                           HttpFraming& framing, Duration limit);
  // Reads the body. Each piece is counted in request.held_body before it is read.
  boost::asio::awaitable<std::optional<Refusal>> read_body(HttpRequest& request);

  // Returns space for bytes of later requests that arrive while an answer is made; empty: read no
  // more.
  boost::asio::mutable_buffer room();
  void add(size_t num_bytes) { buffer_.commit(num_bytes); }
  uint64_t num_body_bytes() const { return num_body_bytes_; }  // sum over all requests so far
  bool has_bytes() const { return buffer_.size() > 0; }

 private:
  struct Parsing;
  std::string_view bytes() const;
  boost::asio::awaitable<HttpSocket::Code> fill();
  std::optional<Refusal> parse_head(HttpRequest& request, HttpFraming& framing, size_t num_bytes);
  struct BodyBounds {
    size_t bytes;
    Duration time;
  };
  boost::asio::awaitable<std::optional<Refusal>> read_into(HttpRequest& request, BodyBounds bounds);
  Refusal head_too_large() const;
  Refusal reading_failed(HttpSocket::Code code, std::string_view what, Duration limit) const;

  const std::shared_ptr<HttpSocket> socket_;
  const HttpOptions& options_;
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<Parsing> parsing_;  // for the request being read
  uint64_t num_body_bytes_ = 0;
};

}  // namespace hocket
