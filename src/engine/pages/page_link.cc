#include "engine/pages/page_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/kv/hmac.h"

namespace hocket {
namespace {

constexpr int kPollMs = 50;
constexpr size_t kSealedPiece = 64 << 10;  // plain bytes that are encrypted at once
// Pages and states are smaller than this, so their size fits a frame's length.
constexpr size_t kMaxPageFrameBytes = size_t{1} << 31;

std::unexpected<Error> link_error(std::string_view name, std::string_view event) {
  return fail(error(ErrorCode::io, "{} {}", name, event)
                  .with_fix("look whether that service runs and can be reached"));
}

// The service runs and can be reached, but it has sent something wrong.
std::unexpected<Error> wrong_frame(std::string_view name, std::string_view event) {
  return fail(error(ErrorCode::io, "{} {}", name, event)
                  .with_fix("look whether that address is the --kv-cache-listen of a service of "
                            "the same version, and what lies between the two"));
}

}  // namespace

// Returns the time at which a frame of that size must be through.
TimePoint PageLink::end_of(size_t size) {
  return RealClock().now() + kSilence +
         from_seconds(static_cast<double>(size) / static_cast<double>(kMinBytesPerSecond));
}

PageLink::PageLink(Fd socket, std::string name, std::function<bool()> is_over)
    : socket_(std::move(socket)), name_(std::move(name)), is_over_(std::move(is_over)) {
  tune_socket(socket_, kSilence);
}

Result<void> PageLink::wait(short events, TimePoint until) {
  const RealClock clock;
  while (true) {
    // Asked first, or one that sends byte by byte would never be asked.
    if (is_over_()) return link_error(name_, "is not needed any more");
    pollfd one{.fd = socket_.get(), .events = events, .revents = 0};
    const int ready = poll(&one, 1, kPollMs);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return link_error(name_, std::strerror(errno));
    if (clock.now() >= until) return link_error(name_, "has not answered in time");
  }
}

Result<PageTls> read_page_tls(std::string_view cluster_tls, std::string_view token) {
  HOCKET_TRY(const TlsUse use, parse_tls_use(cluster_tls));
  if (use == TlsUse::on && token.empty())
    return fail(error(ErrorCode::bad_value,
                      "--cluster-tls on takes its key from the cluster token, and there is none")
                    .with_fix("--cluster-token-file FILE on both sides")
                    .with_param("cluster-tls"));
  PageTls tls{.on_loopback = use == TlsUse::on};
  if (use != TlsUse::off && !token.empty()) {
    HOCKET_TRY(tls.context, TlsContext::create(token));
  }
  return tls;
}

bool PageLink::uses(const PageTls& tls) const {
  return tls.context != nullptr && (tls.on_loopback || !local_address(socket_).is_loopback());
}

Result<void> PageLink::begin_tls(const PageTls& tls, TlsEnd end) {
  tls_ = std::make_unique<TlsStream>(tls.context, end);
  HOCKET_TRY_VOID(tls_->receive({}, plain_, sealed_));
  return write_raw(std::exchange(sealed_, {}), RealClock().now() + kSilence, 0);
}

Result<void> PageLink::write_all(std::string_view bytes, TimePoint end, int flags) {
  if (!tls_) return write_raw(bytes, end, flags);
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kSealedPiece);
    bytes.remove_prefix(piece.size());
    sealed_.clear();
    tls_->send(piece, sealed_);
    HOCKET_TRY_VOID(write_raw(sealed_, end, flags));
  }
  return {};
}

Result<void> PageLink::write_raw(std::string_view bytes, TimePoint end, int flags) {
  while (!bytes.empty()) {
    if (RealClock().now() >= end) return link_error(name_, "takes what is sent too slowly");
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | flags);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      HOCKET_TRY_VOID(wait(POLLOUT, std::min(end, RealClock().now() + kSilence)));
    } else if (errno != EINTR) {
      return link_error(name_, std::strerror(errno));
    }
  }
  return {};
}

Result<void> PageLink::read_all(char* to, size_t size, Duration limit, TimePoint end) {
  while (size > 0) {
    HOCKET_TRY(const size_t got, read_some(to, size, limit, end));
    to += got;
    size -= got;
  }
  return {};
}

Result<size_t> PageLink::read_some(char* to, size_t size, Duration limit, TimePoint end) {
  if (!tls_) return read_raw(to, size, limit, end);
  while (num_given_ == plain_.size()) {
    plain_.clear();
    num_given_ = 0;
    char records[16 << 10];
    HOCKET_TRY(const size_t got, read_raw(records, sizeof records, limit, end));
    sealed_.clear();
    const auto taken = tls_->receive({records, got}, plain_, sealed_);
    // The alert, or the end of the handshake.
    const auto sent = write_raw(sealed_, end, 0);
    if (!taken && taken.error().code == ErrorCode::unauthorized)
      return fail(error(ErrorCode::unauthorized, "{} does not know the cluster's token: {}", name_,
                        taken.error().message)
                      .with_fix("give both services the same --cluster-token-file"));
    if (!taken) return wrong_frame(name_, taken.error().message);
    HOCKET_TRY_VOID(sent);
  }
  const size_t given = plain_.copy(to, size, num_given_);
  num_given_ += given;
  return given;
}

Result<size_t> PageLink::read_raw(char* to, size_t size, Duration limit, TimePoint end) {
  for (;;) {
    if (RealClock().now() >= end) return link_error(name_, "has not answered in time");
    const ssize_t got = recv(socket_.get(), to, size, 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return link_error(name_, "has ended the connection");
    if (errno == EAGAIN)
      HOCKET_TRY_VOID(wait(POLLIN, std::min(end, RealClock().now() + limit)));
    else if (errno != EINTR)
      return link_error(name_, std::strerror(errno));
  }
}

// Reads one message of the handshake. A stranger that sends it byte by byte gets no more time.
Result<Message> PageLink::read_message() {
  const TimePoint end = RealClock().now() + kSilence;
  in_.resize(sizeof(uint32_t));
  HOCKET_TRY_VOID(read_all(in_.data(), in_.size(), kSilence, end));
  HOCKET_TRY(const auto length, frame_length(in_, kMaxStrangerFrameBytes));
  in_.resize(length.value());
  HOCKET_TRY_VOID(read_all(in_.data(), in_.size(), kSilence, end));
  return parse_frame(in_);
}

void PageLink::make_key(std::string_view token, const Nonce& server, const Nonce& client) {
  constexpr std::string_view kUse = "hocket pages";
  key_ = hmac_sha256(token, {std::as_bytes(std::span(kUse)), std::as_bytes(std::span(server)),
                             std::as_bytes(std::span(client))});
}

Result<void> PageLink::server_handshake(std::string_view token, const PageTls& tls) {
  is_server_ = true;
  const Nonce own = make_nonce();
  out_.clear();
  append_frame(out_, HelloMessage{.needs_token = !token.empty(), .tls = uses(tls), .nonce = own});
  HOCKET_TRY_VOID(write_all(out_, end_of(out_.size())));
  if (uses(tls)) HOCKET_TRY_VOID(begin_tls(tls, TlsEnd::server));
  HOCKET_TRY(const Message answer, read_message());
  const auto* proof = std::get_if<ProofMessage>(&answer);
  if (proof == nullptr || !same_proof(proof->proof, prove(token, Side::other, own, proof->nonce)))
    return fail(error(ErrorCode::unauthorized, "{} does not know the cluster's token", name_)
                    .with_fix("give both services the same --cluster-token-file"));
  out_.clear();
  append_frame(out_, WelcomeMessage{.proof = prove(token, Side::rank_0, proof->nonce, own)});
  make_key(token, own, proof->nonce);
  return write_all(out_, end_of(out_.size()));
}

Result<void> PageLink::client_handshake(std::string_view token, const PageTls& tls) {
  HOCKET_TRY(const Message first, read_message());
  const auto* hello = std::get_if<HelloMessage>(&first);
  if (hello == nullptr) return wrong_frame(name_, "does not speak hocket's protocol of pages");
  if (hello->tls != uses(tls))
    return fail(error(ErrorCode::unauthorized, "{} sends pages {} TLS, this service {}", name_,
                      hello->tls ? "with" : "without", hello->tls ? "without" : "with")
                    .with_fix("give both services the same --cluster-tls, on or off"));
  const Nonce theirs = hello->nonce, own = make_nonce();
  if (uses(tls)) HOCKET_TRY_VOID(begin_tls(tls, TlsEnd::client));
  out_.clear();
  append_frame(out_, ProofMessage{.nonce = own, .proof = prove(token, Side::other, theirs, own)});
  HOCKET_TRY_VOID(write_all(out_, end_of(out_.size())));
  HOCKET_TRY(const Message answer, read_message());
  const auto* welcome = std::get_if<WelcomeMessage>(&answer);
  if (welcome == nullptr || !same_proof(welcome->proof, prove(token, Side::rank_0, own, theirs)))
    return fail(error(ErrorCode::unauthorized, "{} does not know the cluster's token", name_)
                    .with_fix("give both services the same --cluster-token-file"));
  make_key(token, theirs, own);
  return {};
}

Proof PageLink::sum_of(bool by_server, uint64_t number, std::string_view frame,
                       std::span<const std::byte> more) const {
  const uint8_t side = by_server ? 1 : 0;
  return hmac_sha256({reinterpret_cast<const char*>(key_.data()), key_.size()},
                     {std::as_bytes(std::span(&side, 1)), std::as_bytes(std::span(&number, 1)),
                      std::as_bytes(std::span(frame)), more});
}

Result<void> PageLink::send(PageFrame type, std::string_view payload,
                            std::span<const std::byte> more) {
  const size_t size = 1 + payload.size() + more.size() + sum_bytes();
  HOCKET_CHECK(size < kMaxPageFrameBytes);
  const auto length = static_cast<uint32_t>(size);
  out_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  out_.push_back(static_cast<char>(type));
  out_.append(payload);
  const TimePoint end = end_of(size);
  if (tls_) {
    HOCKET_TRY_VOID(write_all(out_, end, more.empty() ? 0 : MSG_MORE));
    return write_all({reinterpret_cast<const char*>(more.data()), more.size()}, end);
  }
  const Proof sum = sum_of(is_server_, num_sent_++, out_, more);
  HOCKET_TRY_VOID(write_all(out_, end, MSG_MORE));
  HOCKET_TRY_VOID(
      write_all({reinterpret_cast<const char*>(more.data()), more.size()}, end, MSG_MORE));
  return write_all({reinterpret_cast<const char*>(sum.data()), sum.size()}, end);
}

Result<PageLink::Frame> PageLink::receive(Duration limit, size_t max_bytes) {
  uint32_t length = 0;
  in_.resize(sizeof length);
  HOCKET_TRY_VOID(read_all(in_.data(), in_.size(), limit, RealClock().now() + limit));
  std::memcpy(&length, in_.data(), sizeof length);
  if (length < 1 + sum_bytes() || length > max_bytes + 1 + sum_bytes())
    return wrong_frame(name_, "sent a frame of a size that does not belong here");
  in_.resize(sizeof length + length);
  HOCKET_TRY_VOID(read_all(in_.data() + sizeof length, length, kSilence, end_of(length)));
  const size_t end = in_.size() - sum_bytes();
  const std::string_view signed_part = std::string_view(in_).substr(0, end);
  if (!tls_) {
    Proof sum{};
    std::memcpy(sum.data(), in_.data() + end, sum.size());
    if (!same_proof(sum, sum_of(!is_server_, num_received_++, signed_part)))
      return wrong_frame(name_, "sent a frame that was changed on its way");
  }
  return Frame{.type = static_cast<PageFrame>(in_[sizeof length]),
               .payload = signed_part.substr(sizeof length + 1)};
}

bool PageLink::is_readable() const {
  if (num_given_ < plain_.size()) return true;
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

}  // namespace hocket
