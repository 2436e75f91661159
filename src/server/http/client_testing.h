// A small blocking HTTP client on a raw socket, for tests. It sends exactly the bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace hocket {

struct TestAnswer {
  int status = 0;  // 0: the connection ended before a whole answer
  std::string head, body;
};

class TestClient {
 public:
  explicit TestClient(int port, int receive_buffer_bytes = 0)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        in_(std::move(other.in_)) {}
  ~TestClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Sends no more; answers may still arrive.
  void close_sending() { shutdown(fd_, SHUT_WR); }
  // Closes the connection with a reset.
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Returns the next answer; waits up to `timeout` for each piece.
  TestAnswer receive(std::chrono::milliseconds timeout = std::chrono::seconds(5),
                     bool no_body = false) {
    TestAnswer answer;
    const auto head = until("\r\n\r\n", timeout);
    if (!head.second) return answer;
    answer.head = head.first;
    const int status = std::atoi(answer.head.c_str() + std::string_view("HTTP/1.1 ").size());
    if (status == 100) return {status, answer.head, ""};
    if (no_body || status == 204) {
      answer.status = status;
    } else if (answer.head.find("chunked") != std::string::npos) {
      for (;;) {
        const auto size = until("\r\n", timeout);
        if (!size.second) return answer;
        const size_t n = std::strtoul(size.first.c_str(), nullptr, 16);
        if (!fill(n + 2, timeout)) return answer;
        answer.body += in_.substr(0, n);
        in_.erase(0, n + 2);
        if (n == 0) break;
      }
      answer.status = status;
    } else if (const size_t at = answer.head.find("Content-Length: "); at != std::string::npos) {
      const size_t n = std::strtoul(answer.head.c_str() + at + 16, nullptr, 10);
      if (!fill(n, timeout)) return answer;
      answer.body = in_.substr(0, n);
      in_.erase(0, n);
      answer.status = status;
    } else {
      while (read_some(timeout)) {
      }
      answer.body = std::exchange(in_, {});
      answer.status = status;
    }
    return answer;
  }

  // True if bytes, or the end of the connection, can be read.
  bool has_input() const {
    pollfd p{fd_, POLLIN, 0};
    return poll(&p, 1, 0) > 0;
  }

  // Returns the bytes up to and with `mark`, and true if it arrived.
  std::pair<std::string, bool> until(std::string_view mark, std::chrono::milliseconds timeout) {
    size_t at;
    while ((at = in_.find(mark)) == std::string::npos)
      if (!read_some(timeout)) return {in_, false};
    std::string text = in_.substr(0, at + mark.size());
    in_.erase(0, at + mark.size());
    return {text, true};
  }
  // Waits until `n` bytes have arrived that were not returned yet.
  bool fill(size_t n, std::chrono::milliseconds timeout) {
    while (in_.size() < n)
      if (!read_some(timeout)) return false;
    return true;
  }
  // Returns true if the server ends the connection within `timeout`; drops what it still sends.
  bool sees_end(std::chrono::milliseconds timeout) {
    while (read_some(timeout)) in_.clear();
    return ended_;
  }

  // Reads up to 16 KiB of the next bytes.
  bool read_some(std::chrono::milliseconds timeout) {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(timeout.count())) <= 0) return false;
    char piece[16384];
    const ssize_t n = recv(fd_, piece, sizeof piece, 0);
    ended_ = n <= 0;
    if (n > 0) in_.append(piece, static_cast<size_t>(n));
    return n > 0;
  }

 private:
  int fd_;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

}  // namespace hocket
