#include "cluster/server_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hocket {
namespace {

constexpr size_t kEncryptedAtOnce = size_t{64} << 10;

bool is_not_now(int problem) {
  return problem == EAGAIN || problem == EWOULDBLOCK;
}

}  // namespace

ServerStream::ServerStream(Fd socket, std::shared_ptr<const TlsContext> tls,
                           const std::string& host)
    : socket_(std::move(socket)) {
  if (tls != nullptr) tls_ = std::make_unique<TlsStream>(std::move(tls), TlsEnd::client, host);
}

// Returns how many bytes came; 0: none now.
Result<size_t> ServerStream::read_raw(char* to, size_t max_bytes) {
  while (true) {
    const ssize_t got = recv(socket_.get(), to, max_bytes, 0);
    if (got > 0) return static_cast<size_t>(got);
    has_ended_ = got == 0;
    if (has_ended_) return fail(ErrorCode::io, "it ended the connection");
    if (is_not_now(errno)) return 0;
    if (errno != EINTR) return fail(ErrorCode::io, "{}", std::strerror(errno));
  }
}

// Reads records and decrypts them. An end behind their bytes waits until these are taken.
Result<void> ServerStream::take_records() {
  raw_.resize(kMaxRead);
  HOCKET_TRY(const size_t got, read_raw(raw_.data(), raw_.size()));
  if (got == 0) return {};
  auto taken = tls_->receive({raw_.data(), got}, early_, out_);
  if (taken) return {};
  Error why = std::move(taken).error();
  if (why.code != ErrorCode::unauthorized) why.code = ErrorCode::io;
  end_ = std::move(why);
  return {};
}

Result<bool> ServerStream::begin() {
  if (tls_ == nullptr) return true;
  if (raw_.empty()) HOCKET_TRY_VOID(tls_->receive({}, early_, out_));  // the client speaks first
  HOCKET_TRY(const bool is_sent, flush());
  if (tls_->is_open() || !is_sent) return tls_->is_open() && is_sent;
  HOCKET_TRY_VOID(take_records());
  HOCKET_TRY(const bool is_all_sent, flush());  // an alert, too
  if (end_) return fail(*end_);
  return tls_->is_open() && is_all_sent;
}

Result<size_t> ServerStream::send(std::string_view bytes) {
  if (tls_ != nullptr) {
    HOCKET_TRY(const bool is_sent, flush());
    if (!is_sent) return 0;
    const std::string_view piece = bytes.substr(0, kEncryptedAtOnce);
    tls_->send(piece, out_);
    return piece.size();
  }
  while (true) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (is_not_now(errno)) return 0;
    if (errno != EINTR) return fail(ErrorCode::io, "{}", std::strerror(errno));
  }
}

Result<bool> ServerStream::flush() {
  size_t num_sent = 0;
  while (num_sent < out_.size()) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data() + num_sent, out_.size() - num_sent, MSG_NOSIGNAL);
    if (sent >= 0) {
      num_sent += static_cast<size_t>(sent);
    } else if (is_not_now(errno)) {
      break;
    } else if (errno != EINTR) {
      return fail(ErrorCode::io, "{}", std::strerror(errno));
    }
  }
  out_.erase(0, num_sent);
  return out_.empty();
}

Result<size_t> ServerStream::receive(std::string& in) {
  const size_t before = in.size();
  if (tls_ == nullptr) {
    Result<size_t> got = 0;
    in.resize_and_overwrite(before + kMaxRead, [&](char* data, size_t) {
      got = read_raw(data + before, kMaxRead);
      return before + got.value_or(0);
    });
    return got;
  }
  if (early_.empty() && !end_) HOCKET_TRY_VOID(take_records());
  in += std::exchange(early_, {});
  if (in.size() == before && end_) return fail(*end_);
  HOCKET_TRY_VOID(flush());  // answers of TLS itself; the rest goes with the next bytes
  return in.size() - before;
}

}  // namespace hocket
