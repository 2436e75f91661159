// Tests only: a socket that sends raw bytes to the port of rank 0; reading stops when the
// connection ends or the time is over.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>
#include <string_view>

#include "cluster/ranks_testing.h"

namespace hocket {

class Stranger {
 public:
  explicit Stranger(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress to = TestProxy::loopback(port);
    const auto* name = reinterpret_cast<const sockaddr*>(&to.storage);
    EXPECT_EQ(connect(fd_.get(), name, to.length), 0);
  }
  void say(std::string_view bytes) {
    (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void say(const Message& message) {
    std::string bytes;
    append_frame(bytes, message);
    say(bytes);
  }
  // Returns the next message; nullopt if the connection ended or nothing arrived in time.
  std::optional<Message> hear(Duration most = kPatience) {
    for (;;) {
      const auto length = frame_length(in_, kMaxFrameBytes);
      if (length && length->has_value() && in_.size() - 4 >= **length) {
        auto message = parse_frame(std::string_view(in_).substr(4, **length));
        in_.erase(0, 4 + **length);
        if (!message) return std::nullopt;
        return *std::move(message);
      }
      if (!more(most)) return std::nullopt;
    }
  }
  // Returns true if rank 0 refuses what is said, because it has closed the connection.
  bool is_reset() const {
    int problem = 0;
    socklen_t length = sizeof problem;
    EXPECT_EQ(getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &problem, &length), 0);
    return problem != 0;
  }
  // Returns the bytes that have arrived and are no message.
  const std::string& rest() const { return in_; }
  // Returns true if rank 0 ends the connection in time.
  bool is_closed(Duration most = kPatience) {
    const TimePoint until = RealClock().now() + most;
    while (RealClock().now() < until)
      if (!more(until - RealClock().now())) return ended_;
    return false;
  }

 private:
  bool more(Duration most) {
    pollfd what{fd_.get(), POLLIN, 0};
    const auto ms = std::chrono::ceil<milliseconds>(most).count();
    if (poll(&what, 1, static_cast<int>(ms)) <= 0) return false;
    char buffer[4096];
    const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    ended_ = got <= 0;
    if (got > 0) in_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }
  Fd fd_;
  std::string in_;
  bool ended_ = false;
};

}  // namespace hocket
