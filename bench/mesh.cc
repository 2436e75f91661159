#include "bench/mesh.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace hocket {

namespace {

constexpr int kPatience = 30;                      // seconds
constexpr uint64_t kMaxBytes = uint64_t{1} << 20;  // length of a message, at most

std::unexpected<Error> failed(const std::string& what) {
  return fail(ErrorCode::io, "{}: {}", what, std::strerror(errno));
}

Result<sockaddr_in> resolve(const std::string& addr) {
  const size_t colon = addr.rfind(':');
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (colon == std::string::npos ||
      getaddrinfo(addr.substr(0, colon).c_str(), addr.substr(colon + 1).c_str(), &hints, &found) !=
          0) {
    return fail(error(ErrorCode::bad_value, "--addr {} is not host:port", addr).with_param("addr"));
  }
  sockaddr_in result{};
  std::memcpy(&result, found->ai_addr, sizeof(result));
  freeaddrinfo(found);
  return result;
}

std::string host_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

sockaddr_in own_name(int fd) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length);
  return name;
}

void be_patient(int fd) {
  const timeval limit{.tv_sec = kPatience, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

bool put(int fd, const void* bytes, size_t length) {
  return ::send(fd, bytes, length, MSG_NOSIGNAL) == static_cast<ssize_t>(length);
}
bool put(int fd, std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  return put(fd, &length, sizeof(length)) && put(fd, bytes.data(), bytes.size());
}
bool take(int fd, void* bytes, size_t length) {
  return length == 0 || recv(fd, bytes, length, MSG_WAITALL) == static_cast<ssize_t>(length);
}
bool take(int fd, Mesh::Bytes& bytes) {
  uint64_t length = 0;
  if (!take(fd, &length, sizeof(length)) || length > kMaxBytes) return false;
  bytes.resize(length);
  return take(fd, bytes.data(), length);
}

}  // namespace

Mesh::Mesh(Mesh&& other) noexcept
    : rank_(other.rank_),
      num_ranks_(other.num_ranks_),
      port_(other.port_),
      host_(std::move(other.host_)),
      listener_(std::exchange(other.listener_, -1)),
      peers_(std::exchange(other.peers_, {})) {}

Mesh::~Mesh() {
  if (listener_ >= 0) close(listener_);
  for (const int fd : peers_) {
    if (fd >= 0) close(fd);
  }
}

Result<Mesh> Mesh::listen(const std::string& addr, int num_ranks) {
  HOCKET_TRY(const sockaddr_in where, resolve(addr));
  Mesh mesh(0, num_ranks);
  mesh.listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(mesh.listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(mesh.listener_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0 ||
      ::listen(mesh.listener_, num_ranks) != 0) {
    return failed("cannot listen on " + addr);
  }
  be_patient(mesh.listener_);
  const sockaddr_in name = own_name(mesh.listener_);
  mesh.port_ = ntohs(name.sin_port);
  mesh.host_ = host_of(name);
  mesh.peers_.assign(static_cast<size_t>(num_ranks), -1);
  return mesh;
}

Result<Mesh> Mesh::join(const std::string& addr, int rank, int num_ranks) {
  HOCKET_TRY(const sockaddr_in where, resolve(addr));
  Mesh mesh(rank, num_ranks);
  for (int tries = 0; tries < kPatience * 10; ++tries) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0) {
      be_patient(fd);
      mesh.peers_ = {fd};
      mesh.host_ = host_of(own_name(fd));
      const int32_t mine = rank;
      if (!put(fd, &mine, sizeof(mine))) return failed("rank 0 at " + addr);
      return mesh;
    }
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return failed("rank 0 at " + addr);
}

std::string Mesh::device() const {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text,
              sizeof(text));
    if (host_ == text) name = one->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

Result<void> Mesh::accept_all() {
  for (int i = 1; i < num_ranks_; ++i) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return failed("not all ranks came");
    be_patient(fd);
    int32_t rank = 0;
    if (!take(fd, &rank, sizeof(rank)) || rank <= 0 || rank >= num_ranks_ || peers_[rank] >= 0) {
      close(fd);
      return fail(ErrorCode::lost_rank, "rank {} came twice or is not of 1 to {}", rank,
                  num_ranks_ - 1);
    }
    peers_[rank] = fd;
  }
  close(std::exchange(listener_, -1));
  return {};
}

Result<std::vector<Mesh::Bytes>> Mesh::gather(std::span<const std::byte> mine) {
  std::vector<Bytes> all(static_cast<size_t>(num_ranks_));
  if (rank_ != 0) {
    bool good = put(peers_[0], mine);
    for (Bytes& bytes : all) good = good && take(peers_[0], bytes);
    if (!good) return fail(ErrorCode::lost_rank, "rank 0 is lost");
    return all;
  }
  if (listener_ >= 0) HOCKET_TRY_VOID(accept_all());
  all[0].assign(mine.begin(), mine.end());
  for (int rank = 1; rank < num_ranks_; ++rank) {
    if (!take(peers_[rank], all[rank])) return fail(ErrorCode::lost_rank, "rank {} is lost", rank);
  }
  for (int rank = 1; rank < num_ranks_; ++rank) {
    for (const Bytes& bytes : all) {
      if (!put(peers_[rank], bytes)) return fail(ErrorCode::lost_rank, "rank {} is lost", rank);
    }
  }
  return all;
}

}  // namespace hocket
