#include "server/http/http_reader.h"

// g++ 12 takes the frames of inlined coroutines for mismatched pairs of new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

// Only this file and http_client.cc include Beast's parser: it costs a gigabyte of compiler memory.
#include <algorithm>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "server/http/into_code.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Code = HttpSocket::Code;

constexpr size_t kReadPiece = 4 << 10;       // for heads, and while an answer is made
constexpr size_t kMaxReadAhead = 64 << 10;   // limit of pipelined bytes while an answer is made
constexpr size_t kMaxChunkLines = 16 << 10;  // limit of one chunk's lines, or the trailers
constexpr size_t kBodyStep = 64 << 10;
// Limit of a body that is not used, since its method is not POST. It is small because OPTIONS and
// probes are answered without a key.
constexpr size_t kMaxNeedlessBody = 8 << 10;

Refusal left() {
  return {};
}

Refusal body_too_large(size_t max_bytes) {
  return refusal(
      error(ErrorCode::payload_too_large, "the body is larger than {} bytes", max_bytes));
}

}  // namespace

struct HttpReader::Parsing {
  http::request_parser<http::buffer_body> parser;
};

HttpReader::HttpReader(std::shared_ptr<HttpSocket> socket, const HttpOptions& options)
    : socket_(std::move(socket)), options_(options) {}

HttpReader::~HttpReader() = default;

std::string_view HttpReader::bytes() const {
  return {static_cast<const char*>(buffer_.data().data()), buffer_.size()};
}

asio::mutable_buffer HttpReader::room() {
  if (buffer_.size() >= kMaxReadAhead) return {};
  return buffer_.prepare(kReadPiece);
}

asio::awaitable<Code> HttpReader::fill() {
  Code code;
  buffer_.commit(co_await socket_->async_read_some(buffer_.prepare(kReadPiece), into(code)));
  co_return code;
}

asio::awaitable<bool> HttpReader::wait(Duration limit) {
  if (has_bytes()) co_return true;
  if (buffer_.capacity() > kReadPiece) buffer_.shrink_to_fit();
  socket_->arm(limit);
  const Code code = co_await fill();
  socket_->disarm();
  co_return !code;
}

Refusal HttpReader::head_too_large() const {
  return {.status = 431,
          .error = error(ErrorCode::payload_too_large, "the head is larger than {} bytes",
                         options_.max_header_bytes)};
}

Refusal HttpReader::reading_failed(Code code, std::string_view what, Duration limit) const {
  if (socket_->timed_out())
    return refusal(error(ErrorCode::request_timeout, "the request's {} took more than {} s", what,
                         to_seconds(limit)));
  if (code == http::error::buffer_overflow)
    return {.status = 431,
            .error = error(ErrorCode::payload_too_large,
                           "the lines around the body's chunks are longer than {} bytes",
                           kMaxChunkLines)};
  if (code == http::error::end_of_stream || code == http::error::partial_message ||
      code.category() != http::make_error_code(http::error::bad_method).category())
    return left();
  return refusal(error(ErrorCode::invalid_request, "this is not HTTP/1.1: {} in the {}",
                       code.message(), what));
}

asio::awaitable<std::optional<Refusal>> HttpReader::read_head(HttpRequest& request,
                                                              HttpFraming& framing,
                                                              Duration limit) {
  const auto max_bytes = static_cast<size_t>(options_.max_header_bytes);
  HeadScan scan;
  socket_->arm(limit);
  for (;;) {
    const auto length = scan.find_end(bytes());
    if (!length || *length > 0 || buffer_.size() >= max_bytes) {
      socket_->disarm();
      if (!length && length.error().code == ErrorCode::payload_too_large)
        co_return Refusal{.status = 431, .error = length.error()};
      if (!length) co_return refusal(length.error());
      if (*length == 0 || *length > max_bytes) co_return head_too_large();
      co_return parse_head(request, framing, *length);
    }
    const Code code = co_await fill();
    if (!code) continue;
    socket_->disarm();
    co_return reading_failed(code, "head", limit);
  }
}

std::optional<Refusal> HttpReader::parse_head(HttpRequest& request, HttpFraming& framing,
                                              size_t num_bytes) {
  parsing_ = std::make_unique<Parsing>();
  auto& parser = parsing_->parser;
  parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser.body_limit(boost::none);  // read_into() has its own limit
  Code code;
  buffer_.consume(parser.put(asio::buffer(bytes().substr(0, num_bytes)), code));
  if (code || !parser.is_header_done())
    return refusal(
        error(ErrorCode::invalid_request, "this is not HTTP/1.1: {} in the head", code.message()));
  const auto& head = parser.get();
  framing.http_1_0 = head.version() < 11;
  framing.head_only = head.method() == http::verb::head;
  framing.keep_alive = head.keep_alive();
  for (const auto& field : head) request.headers.emplace_back(field.name_string(), field.value());
  request.method = framing.head_only ? "GET" : std::string(head.method_string());
  request.client = socket_->peer();
  auto target = parse_request_target(head.target());
  if (!target) return refusal(std::move(target).error());
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  return refused_head(
      {.method = head.method_string(), .target = head.target(), .http_1_0 = framing.http_1_0},
      request.headers);
}

asio::awaitable<std::optional<Refusal>> HttpReader::read_body(HttpRequest& request) {
  auto& parser = parsing_->parser;
  if (parser.is_done()) {
    parsing_.reset();
    co_return std::nullopt;
  }
  BodyBounds bounds{.bytes = static_cast<size_t>(options_.max_body_bytes),
                    .time = options_.body_timeout};
  if (request.method != "POST") {
    bounds.bytes = std::min(bounds.bytes, kMaxNeedlessBody);
    bounds.time = std::min(bounds.time, options_.header_timeout);
  }
  const auto length = parser.content_length();
  if (length && *length > bounds.bytes) co_return body_too_large(bounds.bytes);
  if (same_name(request.header("expect"), "100-continue") && !has_bytes())
    co_await socket_->write("HTTP/1.1 100 Continue\r\n\r\n", options_.write_timeout);
  buffer_.max_size(length ? kMaxReadAhead : kMaxChunkLines);
  if (length) buffer_.reserve(std::min<size_t>(*length, kMaxReadAhead));
  socket_->arm(bounds.time);
  auto refused = co_await read_into(request, bounds);
  socket_->disarm();
  buffer_.max_size(std::numeric_limits<size_t>::max());
  parsing_.reset();
  co_return refused;
}

// Reads the body. Its memory doubles as bytes come, so that a Content-Length alone takes no memory.
asio::awaitable<std::optional<Refusal>> HttpReader::read_into(HttpRequest& request,
                                                              BodyBounds bounds) {
  auto& parser = parsing_->parser;
  const auto length = parser.content_length();
  // Room for one byte above the limit shows that a chunked body is longer than the limit.
  const size_t whole = length ? *length : bounds.bytes + 1;
  parser.eager(true);
  size_t num_bytes = 0;
  while (!parser.is_done()) {
    if (num_bytes == request.body.size()) {
      const size_t size = std::min(whole, std::max(kBodyStep, 2 * num_bytes));
      auto counted = request.held_body->resize(static_cast<int64_t>(size));
      if (!counted) co_return refusal(std::move(counted).error());
      request.body.resize(size);
    }
    auto& body = parser.get().body();
    body.data = request.body.data() + num_bytes;
    body.size = request.body.size() - num_bytes;
    body.more = true;
    Code code;
    co_await http::async_read_some(*socket_, buffer_, parser, into(code));
    const size_t num_before = std::exchange(num_bytes, request.body.size() - body.size);
    num_body_bytes_ += num_bytes - num_before;
    if (num_bytes > bounds.bytes) co_return body_too_large(bounds.bytes);
    if (code && code != http::error::need_buffer)
      co_return reading_failed(code, "body", bounds.time);
  }
  request.body.resize(num_bytes);
  co_return std::nullopt;
}

}  // namespace hocket
