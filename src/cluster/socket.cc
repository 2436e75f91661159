#include "cluster/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace hocket {
namespace {

// This option exists since Linux 6.15; older headers lack it.
constexpr int kTcpRtoMaxMs = 44;

template <class T>
const T& as(const sockaddr_storage& storage) {
  return reinterpret_cast<const T&>(storage);
}

void set_option(const Fd& socket, int level, int name, int value) {
  // An option that the kernel lacks only costs time: heartbeats notice the same, later.
  (void)setsockopt(socket.get(), level, name, &value, sizeof value);
}

Result<Fd> open_socket(const SocketAddress& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(ErrorCode::io, "cannot make a socket: {}", std::strerror(errno));
  return fd;
}

}  // namespace

bool is_address(std::string_view host) {
  const std::string text(host.substr(0, host.find('%')));
  in6_addr unused{};
  return inet_pton(AF_INET, text.c_str(), &unused) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &unused) == 1;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [&] {
    return fail(error(ErrorCode::bad_value, "'{}' is not host:port", text)
                    .with_fix("for example h0:5000, 10.0.0.1:5000 or [::1]:5000"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad();
  uint16_t port = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool whole = problem == std::errc() && end == digits.data() + digits.size();
  if (host.empty() || !whole) return bad();
  return HostPort{std::string(host), port};
}

std::string to_text(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", address.host, v6 ? "]" : "", address.port);
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET)
    return ntohl(as<sockaddr_in>(storage).sin_addr.s_addr) >> 24 == 127;
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& v6 = as<sockaddr_in6>(storage).sin6_addr;
  // A socket that also takes IPv4 writes 127.0.0.1 as ::ffff:127.0.0.1.
  return IN6_IS_ADDR_LOOPBACK(&v6) != 0 ||
         (IN6_IS_ADDR_V4MAPPED(&v6) != 0 && v6.s6_addr[12] == 127);
}

bool SocketAddress::is_any() const {
  if (storage.ss_family == AF_INET)
    return as<sockaddr_in>(storage).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&as<sockaddr_in6>(storage).sin6_addr) != 0;
}

uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET ? as<sockaddr_in>(storage).sin_port
                                            : as<sockaddr_in6>(storage).sin6_port);
}

void SocketAddress::set_any() {
  if (storage.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(storage).sin_addr.s_addr = htonl(INADDR_ANY);
  else
    reinterpret_cast<sockaddr_in6&>(storage).sin6_addr = in6addr_any;
}

std::string SocketAddress::host() const {
  char host[INET6_ADDRSTRLEN] = "?";
  const void* bytes = storage.ss_family == AF_INET
                          ? static_cast<const void*>(&as<sockaddr_in>(storage).sin_addr)
                          : static_cast<const void*>(&as<sockaddr_in6>(storage).sin6_addr);
  inet_ntop(storage.ss_family, bytes, host, sizeof host);
  return host;
}

std::string SocketAddress::text() const {
  return to_text({host(), port()});
}

Result<std::vector<SocketAddress>> resolve(const HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const std::string port = std::to_string(address.port);
  const int problem = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &raw);
  if (problem != 0)
    return fail(ErrorCode::io, "cannot find the host {}: {}", address.host, gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* a = raw; a != nullptr; a = a->ai_next) {
    SocketAddress one;
    std::memcpy(&one.storage, a->ai_addr, a->ai_addrlen);
    one.length = a->ai_addrlen;
    found.push_back(one);
  }
  return found;
}

Result<Fd> listen_on(const SocketAddress& address) {
  HOCKET_TRY(Fd fd, open_socket(address));
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (bind(fd.get(), name, address.length) != 0 || listen(fd.get(), 128) != 0) {
    const int problem = errno;
    return fail(problem == EADDRINUSE ? ErrorCode::port_in_use : ErrorCode::io,
                "cannot listen at {}: {}", address.text(), std::strerror(problem));
  }
  return fd;
}

SocketAddress local_address(const Fd& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

std::string own_host() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    SocketAddress address;
    address.length = sizeof(sockaddr_in);
    std::memcpy(&address.storage, one->ifa_addr, address.length);
    if ((one->ifa_flags & IFF_RUNNING) != 0 && !address.is_loopback()) return address.host();
  }
  return "127.0.0.1";
}

Result<Fd> start_dial(const SocketAddress& address) {
  HOCKET_TRY(Fd fd, open_socket(address));
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(fd.get(), name, address.length) != 0 && errno != EINPROGRESS)
    return fail(errno == ECONNREFUSED ? ErrorCode::lost_rank : ErrorCode::io, "cannot reach {}: {}",
                address.text(), std::strerror(errno));
  return fd;
}

int connect_error(const Fd& socket) {
  int problem = 0;
  socklen_t length = sizeof problem;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
  return problem;
}

void tune_socket(const Fd& socket, Duration timeout) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
  set_option(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  set_option(socket, IPPROTO_TCP, kTcpRtoMaxMs, 1000);
}

}  // namespace hocket
