// The requests of one connection, read off its wire: heads, then bodies. Each read, each list and
// each wait has a bound. Beast's parser stays inside of http_reader.cc.
//
// Owner: the connection.   Thread: its.
#pragma once

// As in http_core.h, before any of Asio.
#ifdef __SANITIZE_THREAD__
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>

#include "server/wire/http_exchange.h"
#include "server/wire/http_wire.h"
#include "server/wire/request_head.h"

namespace hocket {

class HttpReader {
 public:
  HttpReader(std::shared_ptr<HttpWire> wire, const HttpOptions& options);
  ~HttpReader();

  // Until bytes of the next request are there. False: none came within `limit`, or the client left.
  boost::asio::awaitable<bool> wait(Duration limit);
  // Reads all of a request but its body, within `limit`, and finds how its answer is framed.
  boost::asio::awaitable<std::optional<Refusal>> read_head(HttpRequest& request,
                                                           HttpFraming& framing, Duration limit);
  // Each piece of the body is counted in request.held_body before it is read.
  boost::asio::awaitable<std::optional<Refusal>> read_body(HttpRequest& request);

  // Bytes of later requests, which are read while an answer is made. None when `room` is empty.
  boost::asio::mutable_buffer room();
  void add(size_t num_bytes) { buffer_.commit(num_bytes); }
  uint64_t num_body_bytes() const { return num_body_bytes_; }  // of all bodies so far
  bool has_bytes() const { return buffer_.size() > 0; }

 private:
  struct Parsing;
  std::string_view bytes() const;
  boost::asio::awaitable<HttpWire::Code> fill();
  std::optional<Refusal> parse_head(HttpRequest& request, HttpFraming& framing, size_t num_bytes);
  struct BodyBounds {
    size_t bytes;
    Duration time;
  };
  boost::asio::awaitable<std::optional<Refusal>> read_into(HttpRequest& request, BodyBounds bounds);
  Refusal head_too_large() const;
  Refusal reading_failed(HttpWire::Code code, std::string_view what, Duration limit) const;

  const std::shared_ptr<HttpWire> wire_;
  const HttpOptions& options_;
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<Parsing> parsing_;  // of the request being read
  uint64_t num_body_bytes_ = 0;
};

}  // namespace hocket
