#include "cluster/blocking_http_connection.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

namespace http = boost::beast::http;

constexpr uint32_t kMaxHeadBytes = 8 << 10;
// Limit of bytes that came and cannot be parsed yet, such as the beginning of a chunk.
constexpr size_t kMaxUnparsedBytes = size_t{256} << 10;

// Waits until the socket is ready or the time is over.
bool wait_for(const Fd& socket, short events, TimePoint until) {
  for (;;) {
    const auto remaining =
        std::chrono::ceil<std::chrono::milliseconds>(until - RealClock().now()).count();
    pollfd ready{.fd = socket.get(), .events = events, .revents = 0};
    const int found =
        ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(remaining, 0, 60'000)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
    if (found == 0 && remaining <= 60'000) return false;
  }
}

Result<Fd> connect_by(const SocketAddress& address, TimePoint until) {
  auto socket = start_dial(address);
  if (!socket) return fail(ErrorCode::io, "{}", socket.error().message);
  if (!wait_for(*socket, POLLOUT, until))
    return fail(ErrorCode::timed_out, "no connection in time");
  if (const int problem = connect_error(*socket); problem != 0)
    return fail(ErrorCode::io, "{}", std::strerror(problem));
  const int yes = 1;
  (void)setsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return *std::move(socket);
}

}  // namespace

struct BlockingHttpConnection::Parser : http::response_parser<http::string_body> {
  explicit Parser(size_t max_bytes) : max_body_bytes(max_bytes) {
    header_limit(kMaxHeadBytes);
    body_limit(max_bytes);
  }
  const size_t max_body_bytes;
};

Result<BlockingHttpConnection> BlockingHttpConnection::dial(
    const std::vector<SocketAddress>& addresses, const std::shared_ptr<const TlsContext>& tls,
    const std::string& host, TimePoint until) {
  Error why = error(ErrorCode::io, "it has no address");
  for (size_t i = 0; i < addresses.size(); ++i) {
    // An address that swallows everything leaves their share of the time to the others.
    const TimePoint now = RealClock().now();
    const TimePoint share = now + (until - now) / static_cast<int64_t>(addresses.size() - i);
    auto socket = connect_by(addresses[i], share);
    if (!socket) {
      why = std::move(socket).error();
      continue;
    }
    BlockingHttpConnection made(ServerStream(*std::move(socket), tls, host));
    auto done = made.begin_tls(share);
    if (done) return made;
    why = std::move(done).error();
  }
  return fail(std::move(why));
}

BlockingHttpConnection::BlockingHttpConnection(ServerStream stream) : stream_(std::move(stream)) {}
BlockingHttpConnection::BlockingHttpConnection(BlockingHttpConnection&&) noexcept = default;
BlockingHttpConnection& BlockingHttpConnection::operator=(BlockingHttpConnection&&) noexcept =
    default;
BlockingHttpConnection::~BlockingHttpConnection() = default;

Result<void> BlockingHttpConnection::begin_tls(TimePoint until) {
  while (true) {
    HOCKET_TRY(const bool is_open, stream_.begin());
    if (is_open) return {};
    if (!wait_for(stream_.socket(), stream_.wanted(), until))
      return fail(ErrorCode::timed_out, "no TLS in time");
  }
}

Result<void> BlockingHttpConnection::send(std::string_view request, size_t max_body_bytes,
                                          TimePoint until) {
  HOCKET_CHECK(may_go_on());
  parser_ = std::make_unique<Parser>(max_body_bytes);
  in_.clear();
  return stream_.send_all(request, [&](short events) -> Result<void> {
    if (wait_for(stream_.socket(), events, until)) return {};
    return fail(ErrorCode::timed_out, "it reads nothing");
  });
}

Result<void> BlockingHttpConnection::read_head(TimePoint until) {
  while (!parser_->is_header_done()) {
    HOCKET_TRY(const bool came, read(until));
    if (!came) return fail(ErrorCode::timed_out, "no answer in time");
  }
  parser_->eager(true);
  return {};
}

Result<bool> BlockingHttpConnection::read(TimePoint until) {
  const size_t num_waiting = in_.size();  // they came with the head
  HOCKET_TRY_VOID(parse());
  if (in_.size() < num_waiting) return true;
  while (true) {
    const auto got = stream_.receive(in_);
    if (!got && stream_.has_ended() && parser_->got_some()) {
      boost::system::error_code code;
      parser_->put_eof(code);  // the end of an answer that has no other
      if (!code) return true;
    }
    if (!got) return fail(got.error());
    if (*got > 0) break;
    if (until <= RealClock().now() || !wait_for(stream_.socket(), POLLIN, until)) return false;
  }
  HOCKET_TRY_VOID(parse());
  return true;
}

// Takes no byte of the body before read_head() has returned, because its limit may be lifted then.
Result<void> BlockingHttpConnection::parse() {
  while (!in_.empty() && !parser_->is_done() && (parser_->eager() || !parser_->is_header_done())) {
    boost::system::error_code code;
    const size_t took = parser_->put(boost::asio::buffer(in_), code);
    in_.erase(0, took);
    const bool lacks_bytes = code == http::error::need_more || (!code && took == 0);
    if (lacks_bytes && in_.size() <= kMaxUnparsedBytes) break;
    if (lacks_bytes)
      return fail(ErrorCode::bad_value, "the head of a chunk is longer than {} bytes",
                  kMaxUnparsedBytes);
    if (code == http::error::body_limit)
      return fail(ErrorCode::payload_too_large, "its answer is longer than {} bytes",
                  parser_->max_body_bytes);
    if (code) return fail(ErrorCode::bad_value, "{}", code.message());
  }
  return {};
}

void BlockingHttpConnection::lift_body_limit() {
  parser_->body_limit(boost::none);
}

bool BlockingHttpConnection::has_begun() const {
  return parser_ != nullptr && parser_->got_some();
}

bool BlockingHttpConnection::is_done() const {
  return parser_->is_done();
}

bool BlockingHttpConnection::may_go_on() const {
  return parser_ == nullptr || (parser_->is_done() && parser_->keep_alive() && in_.empty());
}

int BlockingHttpConnection::status() const {
  return static_cast<int>(parser_->get().result_int());
}

std::string_view BlockingHttpConnection::content_type() const {
  const auto text = parser_->get()[http::field::content_type];
  return {text.data(), text.size()};
}

std::string BlockingHttpConnection::take_body() {
  return std::exchange(parser_->get().body(), {});
}

}  // namespace hocket
