// TCP sockets of the control plane: addresses, listening, dialling, and the options by which the
// kernel notices broken links. Only resolve() may block.
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

// Parses "h0:5000", "10.0.0.1:5000", "[::1]:5000". Errors: bad_value.
Result<HostPort> parse_host_port(std::string_view text);
std::string to_text(const HostPort& address);

// Returns true for an IPv4 or IPv6 address, also with a zone ("fe80::1%eth0"): it needs no
// resolver.
bool is_address(std::string_view host);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool is_loopback() const;
  bool is_any() const;
  uint16_t port() const;
  void set_any();            // sets every address of this machine; keeps the port
  std::string host() const;  // without the port
  std::string text() const;
};

// Returns all addresses of a name. May block for as long as the resolver does. Errors: io.
Result<std::vector<SocketAddress>> resolve(const HostPort& address);

// Listens at `address`. Errors: port_in_use; io, also if the address is not of this machine.
Result<Fd> listen_on(const SocketAddress& address);
// Returns this side's address of a socket that listens or is connected.
SocketAddress local_address(const Fd& socket);
// Returns an address by which others may reach this machine: an IPv4 address of a network that is
// up; 127.0.0.1 if there is none.
std::string own_host();
// Starts to connect; the socket becomes writable when that has ended. Errors: io; lost_rank if
// nothing listens there, where the kernel knows it at once.
Result<Fd> start_dial(const SocketAddress& address);
// Returns how connecting ended: 0, or an errno.
int connect_error(const Fd& socket);

// Sets no delay, keepalive after 1 s, and `timeout` as limit for unacknowledged bytes. Where the
// kernel can, it retransmits at least every second, so that a link that was out for 2 s is used
// again soon.
void tune_socket(const Fd& socket, Duration timeout);

}  // namespace hocket
