#include "cluster/etcd_http.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cluster/etcd_json.h"

namespace hocket {
namespace {

namespace http = boost::beast::http;
using Code = boost::system::error_code;

constexpr uint32_t kMaxHeadBytes = 8 << 10;

// Waits until the socket is ready or the time is over.
bool wait_for(const Fd& socket, short events, TimePoint until) {
  for (;;) {
    const auto remaining =
        std::chrono::ceil<std::chrono::milliseconds>(until - RealClock().now()).count();
    pollfd ready{.fd = socket.get(), .events = events, .revents = 0};
    const int found =
        ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(remaining, 0, 60'000)));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

}  // namespace

struct EtcdConnection::Parser : http::response_parser<http::string_body> {};

Result<EtcdConnection> EtcdConnection::dial(const HostPort& server,
                                            const std::vector<SocketAddress>& addresses,
                                            const std::shared_ptr<const TlsContext>& tls,
                                            TimePoint until) {
  Error why = error(ErrorCode::io, "{} has no address", to_text(server));
  for (size_t i = 0; i < addresses.size(); ++i) {
    // An address that swallows everything leaves their share of the time to the others.
    const TimePoint now = RealClock().now();
    const TimePoint share = now + (until - now) / static_cast<int64_t>(addresses.size() - i);
    auto socket = start_dial(addresses[i]);
    if (!socket) {
      why = error(ErrorCode::io, "{}", socket.error().message);
      continue;
    }
    if (!wait_for(*socket, POLLOUT, share)) {
      why = error(ErrorCode::io, "{}: no connection in time", to_text(server));
      continue;
    }
    if (const int problem = connect_error(*socket); problem != 0) {
      why = error(ErrorCode::io, "{}: {}", to_text(server), std::strerror(problem));
      continue;
    }
    tune_socket(*socket, std::chrono::seconds(3));
    EtcdConnection made(ServerStream(*std::move(socket), tls, server.host), server);
    auto done = made.shake_hands(share);
    if (done) return made;
    why = std::move(done).error();
  }
  return fail(std::move(why));
}

EtcdConnection::EtcdConnection(ServerStream stream, const HostPort& server)
    : stream_(std::move(stream)), server_(to_text(server)) {}
EtcdConnection::EtcdConnection(EtcdConnection&&) noexcept = default;
EtcdConnection& EtcdConnection::operator=(EtcdConnection&&) noexcept = default;
EtcdConnection::~EtcdConnection() = default;

// Another server may have the right certificate, so a wrong one is no reason to ask none.
std::unexpected<Error> EtcdConnection::broken(const Error& why) const {
  Error all = error(ErrorCode::io, "{}: {}", server_, why.message);
  if (why.code == ErrorCode::unauthorized)
    all.fix =
        "--cluster-store-cacert FILE names the certificate's issuer; the certificate must "
        "have the name or address that --cluster-store gives";
  return fail(std::move(all));
}

Result<void> EtcdConnection::shake_hands(TimePoint until) {
  while (true) {
    const auto done = stream_.begin();
    if (!done) return broken(done.error());
    if (*done) return {};
    if (!wait_for(stream_.socket(), stream_.wanted(), until))
      return fail(ErrorCode::io, "{}: no TLS in time", server_);
  }
}

Result<void> EtcdConnection::send(std::string_view path, std::string_view json, TimePoint until) {
  may_go_on_ = false;  // until the answer is whole
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(kMaxEtcdAnswerBytes);
  parser_->eager(true);
  in_.clear();
  // A server that has no leader ends a watch then, which would be silent otherwise.
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
      "Grpc-Metadata-hasleader: true\r\nContent-Length: {}\r\n\r\n{}",
      path, server_, json.size(), json);
  const auto wait = [&](short events) -> Result<void> {
    if (wait_for(stream_.socket(), events, until)) return {};
    return fail(ErrorCode::timed_out, "it reads nothing");
  };
  if (auto sent = stream_.send_all(request, wait); !sent) return broken(sent.error());
  return {};
}

Result<bool> EtcdConnection::read(TimePoint until) {
  while (true) {
    const auto got = stream_.receive(in_);
    if (!got) return broken(got.error());
    if (*got > 0) break;
    if (until <= RealClock().now() || !wait_for(stream_.socket(), POLLIN, until)) return false;
  }
  HOCKET_TRY_VOID(parse());
  return true;
}

Result<void> EtcdConnection::parse() {
  while (!in_.empty() && !parser_->is_done()) {
    Code code;
    const size_t took = parser_->put(boost::asio::buffer(in_), code);
    in_.erase(0, took);
    if (code == http::error::need_more) break;
    if (code)
      return fail(error(ErrorCode::io, "{}: the server is not etcd: {}", server_, code.message())
                      .with_fix("--cluster-store names etcd's client ports: etcd://... in the "
                                "clear, etcds://... with TLS"));
    if (took == 0) break;
  }
  if (in_.size() > kMaxEtcdAnswerBytes)
    return fail(ErrorCode::io, "{}: its answer is longer than {} bytes", server_,
                kMaxEtcdAnswerBytes);
  return {};
}

Result<EtcdConnection::Answer> EtcdConnection::post(std::string_view path, std::string_view json,
                                                    TimePoint until) {
  HOCKET_TRY_VOID(send(path, json, until));
  while (!parser_->is_done()) {
    HOCKET_TRY(const bool came, read(until));
    if (!came) return fail(ErrorCode::io, "{}: no answer in time", server_);
  }
  may_go_on_ = parser_->keep_alive() && in_.empty();
  return Answer{.status = static_cast<int>(parser_->get().result_int()),
                .body = std::move(parser_->get().body())};
}

Result<void> EtcdConnection::begin(std::string_view path, std::string_view json, TimePoint until) {
  HOCKET_TRY_VOID(send(path, json, until));
  parser_->body_limit(boost::none);  // lines() takes what has arrived, and limits each line
  line_.clear();
  while (!parser_->is_header_done()) {
    HOCKET_TRY(const bool came, read(until));
    if (!came) return fail(ErrorCode::io, "{}: no answer in time", server_);
  }
  const int status = static_cast<int>(parser_->get().result_int());
  if (status == 200) return {};
  while (!parser_->is_done() && parser_->get().body().size() < kMaxEtcdAnswerBytes) {
    const auto came = read(until);
    if (!came || !*came) break;
  }
  return fail(read_etcd_error(status, parser_->get().body()));
}

Result<std::vector<std::string>> EtcdConnection::lines() {
  std::vector<std::string> whole;
  const auto take = [&]() -> Result<void> {
    line_ += std::exchange(parser_->get().body(), {});
    for (size_t end = 0; (end = line_.find('\n')) != std::string::npos; line_.erase(0, end + 1))
      if (end > 0) whole.push_back(line_.substr(0, end));
    if (line_.size() > kMaxEtcdAnswerBytes)
      return fail(ErrorCode::io, "{}: a line of its watch is longer than {} bytes", server_,
                  kMaxEtcdAnswerBytes);
    return {};
  };
  for (;;) {
    HOCKET_TRY_VOID(take());
    if (!whole.empty()) return whole;  // the rest is read at the next call
    if (parser_->is_done()) return fail(ErrorCode::io, "{}: it ended the watch", server_);
    HOCKET_TRY(const bool came, read(TimePoint::min()));
    if (!came) return whole;
  }
}

}  // namespace hocket
