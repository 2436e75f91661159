// TCP sockets of the control plane: addresses, listening, dialling, and the limits that make the
// kernel notice what it can. None of the calls blocks but resolve().
// Thread: any.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;
  uint16_t port = 0;

  bool operator==(const HostPort&) const = default;
};

// "h0:5000", "10.0.0.1:5000", "[::1]:5000". Errors: bad_value.
Result<HostPort> parse_host_port(std::string_view text);
std::string to_text(const HostPort& address);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool is_loopback() const;
  bool is_any() const;
  uint16_t port() const;
  void set_any();            // every address of this machine, the port kept
  std::string host() const;  // without the port
  std::string text() const;
};

// All addresses of a name. May block for as long as the resolver does. Errors: io.
Result<std::vector<SocketAddress>> resolve(const HostPort& address);

// Errors: port_in_use; io, also when the address is not of this machine.
Result<Fd> listen_on(const SocketAddress& address);
// This side's address of a socket that listens or is connected.
SocketAddress local_address(const Fd& socket);
// An address of this machine by which others may reach it: of a network that is up, loopback where
// there is none.
std::string own_host();
// Begins to connect; the socket becomes writable when that has ended. Errors: io.
Result<Fd> start_dial(const SocketAddress& address);
// How it ended: 0, or an errno.
int dial_error(const Fd& socket);

// No delay, keepalive after 1 s, unacknowledged bytes for at most `timeout`; and, where the kernel
// can, retransmissions at least every second, so that a link that was out for 2 s is used again at
// once.
void tune_socket(const Fd& socket, Duration timeout);

}  // namespace hocket
