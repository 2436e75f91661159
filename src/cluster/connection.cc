#include "cluster/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace hocket {

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  HOCKET_CHECK(static_cast<bool>(epoll_));
}

void Poller::add(const Fd& fd, uint64_t token, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = token}};
  HOCKET_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0);
}

void Poller::change(const Fd& fd, uint64_t token, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = token}};
  HOCKET_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd.get(), &event) == 0);
}

void Poller::remove(const Fd& fd) {
  HOCKET_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr) == 0);
}

std::span<const epoll_event> Poller::wait(TimePoint until) {
  const TimePoint now = RealClock().now();
  int64_t ms = 60'000;
  if (until < now + std::chrono::milliseconds(ms))
    ms = std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now).count());
  const int count = epoll_wait(epoll_.get(), events_, std::size(events_), static_cast<int>(ms));
  return {events_, static_cast<size_t>(std::max(0, count))};
}

Connection::Connection(Fd fd, Poller& poller, uint64_t token)
    : fd_(std::move(fd)), poller_(poller), token_(token) {
  poller_.add(fd_, token_, EPOLLIN);
}

Connection::~Connection() {
  poller_.remove(fd_);
}

void Connection::begin_tls(std::shared_ptr<const TlsContext> context, TlsEnd end) {
  const std::string early = in_.substr(read_);
  in_.clear();
  read_ = 0;
  tls_ = std::make_unique<TlsStream>(std::move(context), end);
  take(early);
  flush();
}

void Connection::take(std::string_view bytes) {
  if (tls_ == nullptr) {
    in_.append(bytes);
  } else if (auto taken = tls_->receive(bytes, in_, out_); !taken) {
    flush();  // the alert says why to the other side
    end(std::move(taken).error());
  }
}

void Connection::receive() {
  constexpr size_t kMax = size_t{256} << 10;
  if (read_ > 0) {
    in_.erase(0, read_);
    read_ = 0;
  }
  char buffer[16 << 10];
  for (size_t total = 0; total < kMax && !ended_;) {
    const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      take({buffer, static_cast<size_t>(got)});
      total += static_cast<size_t>(got);
      received_bytes_ += static_cast<size_t>(got);
    } else if (got == 0) {
      end(error(ErrorCode::lost_rank, "the other side ended the connection"));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      end(error(ErrorCode::lost_rank, "the connection broke: {}", std::strerror(errno)));
    }
  }
  if (tls_ == nullptr) return;
  flush();  // the handshake's answers
  end_if_too_much_waits();
}

Result<std::optional<Message>> Connection::next(size_t max_frame_bytes) {
  constexpr size_t kLengthBytes = 4;
  const std::string_view remaining = std::string_view(in_).substr(read_);
  auto length = frame_length(remaining, max_frame_bytes);
  Result<Message> message = fail(ErrorCode::internal, "no message yet");
  if (length) {
    if (!length->has_value() || remaining.size() - kLengthBytes < **length) return std::nullopt;
    message = parse_frame(remaining.substr(kLengthBytes, **length));
    read_ += kLengthBytes + **length;
  }
  if (length && message) return *std::move(message);
  return fail(length ? std::move(message).error() : std::move(length).error());
}

void Connection::send(const Message& message) {
  if (ended_) return;
  if (tls_ == nullptr) {
    append_frame(out_, message);
  } else {
    std::string frame;
    append_frame(frame, message);
    tls_->send(frame, out_);
  }
  flush();
  end_if_too_much_waits();
}

void Connection::end_if_too_much_waits() {
  const size_t waits = out_.size() - sent_ + (tls_ ? tls_->num_waiting() : 0);
  if (waits > kMaxUnsentBytes)
    end(error(ErrorCode::lost_rank, "the other side does not read: {} bytes wait for it", waits));
}

void Connection::flush() {
  while (!ended_ && sent_ < out_.size()) {
    const ssize_t put = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (put >= 0) {
      sent_ += static_cast<size_t>(put);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // The peer's last message can still be read, so receive() ends the connection, not this.
      sent_ = out_.size();
    }
  }
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  } else if (sent_ > kMaxFrameBytes) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  const bool wait = sent_ < out_.size() && !ended_;
  if (wait == waits_to_write_) return;
  waits_to_write_ = wait;
  poller_.change(fd_, token_, wait ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Connection::finish() {
  shutdown(fd_.get(), SHUT_WR);
}

}  // namespace hocket
