#include "bench/socket_transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hocket {

namespace {

bool poll_for(int fd, int max_ms) {
  pollfd any{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&any, 1, max_ms) == 1;
}

}  // namespace

SocketTransport::SocketTransport(int rank, int num_ranks, SendMethod way)
    : rank_(rank),
      way_(way),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_NONBLOCK)) {
  peers_.resize(static_cast<size_t>(num_ranks));
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(rank)}};
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);
}

// The ring is empty before its sockets and memory go: the requests of a closed connection end.
SocketTransport::~SocketTransport() {
  for (const Peer& p : peers_) {
    if (p.fd >= 0 && ring_ != nullptr) shutdown(p.fd, SHUT_RDWR);
  }
  while (ring_ != nullptr && ring_->num_open() > 0) {
    if (!ring_->next()) poll_for(ring_->fd(), 10);
  }
  for (const Peer& p : peers_) {
    if (p.fd >= 0) close(p.fd);
  }
  for (const int fd : {listener_, epoll_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

Result<std::unique_ptr<SocketTransport>> SocketTransport::create(int rank, int num_ranks,
                                                                 const Options& options) {
  std::unique_ptr<SocketTransport> end(new SocketTransport(rank, num_ranks, options.way));
  if (options.way == SendMethod::ring || options.way == SendMethod::ring_zero_copy) {
    HOCKET_TRY(end->ring_, IoRing::create());
  }
  sockaddr_in where{};
  where.sin_family = AF_INET;
  inet_pton(AF_INET, options.host.c_str(), &where.sin_addr);
  end->listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(end->listener_, reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0 ||
      listen(end->listener_, num_ranks) != 0) {
    return fail(ErrorCode::io, "cannot listen on {}: {}", options.host, std::strerror(errno));
  }
  return end;
}

std::vector<std::byte> SocketTransport::address() const {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &length);
  const auto bytes = std::as_bytes(std::span(&name, 1));
  return {bytes.begin(), bytes.end()};
}

bool SocketTransport::adopt(int peer, int fd) {
  if (peer < 0 || peer >= num_ranks() || peers_[peer].fd >= 0) return false;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  peers_[peer].fd = fd;
  if (ring_ != nullptr) {
    request_in(peers_[peer]);
    ring_->submit();
    return true;
  }
  if (way_ == SendMethod::zero_copy) {
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) return false;
    peers_[peer].sent.resize(kMaxUnfreed);
  }
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(peer)}};
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Connects to all lower ranks and accepts all higher ones. A peer's listener queues a connection
// until the peer accepts it.
Result<void> SocketTransport::connect(std::span<const std::span<const std::byte>> addresses) {
  for (int peer = 0; peer < rank_; ++peer) {
    sockaddr_in where{};
    HOCKET_CHECK(addresses[peer].size() == sizeof(where));
    std::memcpy(&where, addresses[peer].data(), sizeof(where));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int32_t mine = rank_;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0 ||
        write(fd, &mine, sizeof(mine)) != ssize_t{sizeof(mine)} || !adopt(peer, fd)) {
      return fail(ErrorCode::lost_rank, "rank {}: {}", peer, std::strerror(errno));
    }
  }
  for (int i = rank_ + 1; i < num_ranks(); ++i) {
    pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
    const int fd =
        poll(&ready, 1, 30'000) == 1 ? accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    int32_t peer = -1;
    if (fd < 0 || recv(fd, &peer, sizeof(peer), MSG_WAITALL) != ssize_t{sizeof(peer)} ||
        !adopt(peer, fd)) {
      return fail(ErrorCode::lost_rank, "a rank above {} did not come", rank_);
    }
  }
  return {};
}

SocketTransport::Flow& SocketTransport::flow(const Channel& channel) {
  const int index = channel.lane * kNumMessageKinds + static_cast<int>(channel.kind);
  return peers_.at(static_cast<size_t>(channel.peer)).flows.at(static_cast<size_t>(index));
}

void SocketTransport::expect(const Channel& from, std::span<std::byte> slot) {
  Flow& f = flow(from);
  HOCKET_CHECK(!f.expected);
  HOCKET_CHECK(!f.landed);
  f.slot = slot;
  f.expected = true;
  if (!f.early) return;
  HOCKET_CHECK(f.kept.size() <= slot.size());
  std::ranges::copy(f.kept, slot.begin());
  f.arrival.num_bytes = f.kept.size();
  f.early = f.expected = false;
  f.landed = has_events_ = true;
}

Result<std::optional<Transport::Arrival>> SocketTransport::arrived(const Channel& from) {
  Flow& f = flow(from);
  if (std::exchange(f.landed, false)) return f.arrival;
  if (peers_[from.peer].lost) return fail(ErrorCode::lost_rank, "rank {} is lost", from.peer);
  return std::nullopt;
}

Result<void> SocketTransport::send(const Channel& to,
                                   std::span<const std::span<const std::byte>> parts) {
  Peer& p = peers_.at(static_cast<size_t>(to.peer));
  Flow& f = flow(to);
  if (p.lost) return fail(ErrorCode::lost_rank, "rank {} is lost", to.peer);
  HOCKET_CHECK(!f.sending);
  HOCKET_CHECK(parts.size() <= static_cast<size_t>(kMaxPieces));
  f.head = {.flow = static_cast<uint64_t>(&f - p.flows.data())};
  f.num_out = 0;
  f.out[f.num_out++] = {&f.head, sizeof(f.head)};
  for (const auto part : parts) {
    f.head.num_bytes += part.size();
    if (!part.empty()) f.out[f.num_out++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  f.next_out = 0;
  f.sending = true;
  f.written = false;
  p.queue.push_back(&f);
  if (ring_ != nullptr) {
    request_out(p);
    ring_->submit();
  } else {
    write_to(p);
  }
  return {};
}

Result<bool> SocketTransport::sent(const Channel& to) {
  if (!flow(to).sending) return true;
  if (peers_[to.peer].lost) return fail(ErrorCode::lost_rank, "rank {} is lost", to.peer);
  return false;
}

void SocketTransport::withdraw() {
  const TimePoint deadline = now() + std::chrono::seconds(1);
  const auto is_sending = [](const Peer& p) { return !p.lost && !p.queue.empty(); };
  while (std::ranges::any_of(peers_, is_sending) && now() < deadline) {
    progress();
    wait(std::chrono::milliseconds(1));
  }
  for (Peer& p : peers_) {
    p.queue.clear();
    for (Flow& f : p.flows) f.expected = f.landed = f.early = f.sending = false;
  }
}

void SocketTransport::lose(Peer& p) {
  p.lost = has_events_ = true;
  if (ring_ == nullptr) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, p.fd, nullptr);
}

void SocketTransport::free_if_sent(Flow& f) {
  if (f.written && f.num_unfreed == 0) f.sending = false;
}

msghdr SocketTransport::next_out(Peer& p) {
  Flow& f = *p.queue.front();
  msghdr message{};
  message.msg_iov = &f.out[f.next_out];
  message.msg_iovlen = f.num_out - f.next_out;
  return message;
}

void SocketTransport::took_out(Peer& p, size_t num_bytes) {
  Flow& f = *p.queue.front();
  while (f.next_out < f.num_out) {
    iovec& part = f.out[f.next_out];
    const size_t taken = std::min(num_bytes, part.iov_len);
    part = {static_cast<std::byte*>(part.iov_base) + taken, part.iov_len - taken};
    num_bytes -= taken;
    if (part.iov_len > 0) return;
    ++f.next_out;
  }
  p.queue.pop_front();
  f.written = has_events_ = true;
  free_if_sent(f);
}

void SocketTransport::write_to(Peer& p) {
  while (!p.queue.empty()) {  // writes until the kernel's buffer is full
    Flow& f = *p.queue.front();
    const msghdr message = next_out(p);
    const int flags = way_ == SendMethod::zero_copy ? MSG_ZEROCOPY : 0;
    ssize_t num = sendmsg(p.fd, &message, MSG_NOSIGNAL | flags);
    const bool is_counted = flags != 0 && num >= 0;
    // The kernel pins no more pages until notices are read.
    if (num < 0 && errno == ENOBUFS) num = sendmsg(p.fd, &message, MSG_NOSIGNAL);
    if (num < 0) {
      if (errno != EAGAIN && errno != EINTR) lose(p);
      break;
    }
    if (is_counted) {
      p.sent[p.num_sent++ % kMaxUnfreed] = &f;
      ++f.num_unfreed;
    }
    took_out(p, static_cast<size_t>(num));
  }
  if (const bool wants = !p.queue.empty() && !p.lost; wants != p.wants_out) {
    p.wants_out = wants;
    epoll_event event{.events = EPOLLIN | (wants ? uint32_t{EPOLLOUT} : 0U),
                      .data = {.u32 = static_cast<uint32_t>(&p - peers_.data())}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, p.fd, &event);
  }
}

// A notice names a run of sends whose bytes the kernel reads no more.
void SocketTransport::read_notices(Peer& p) {
  for (;;) {
    alignas(cmsghdr) std::byte control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(p.fd, &message, MSG_ERRQUEUE) < 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      sock_extended_err notice{};
      std::memcpy(&notice, CMSG_DATA(c), sizeof(notice));
      if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      for (uint32_t i = notice.ee_info; i != notice.ee_data + 1; ++i) {
        Flow& f = *p.sent[i % kMaxUnfreed];
        --f.num_unfreed;
        free_if_sent(f);
      }
      has_events_ = true;
    }
  }
}

void SocketTransport::finish(Peer& p, Flow& f) {
  f.arrival = {.num_bytes = p.head.num_bytes, .when = now()};
  if (p.aside && f.expected) std::ranges::copy(f.kept, f.slot.begin());  // expect() came later
  (f.expected ? f.landed : f.early) = true;
  f.expected = false;
  p.num_head = p.num_in = 0;
  has_events_ = true;
}

std::span<std::byte> SocketTransport::next_in(Peer& p) {
  while (p.num_head == sizeof(Head)) {
    Flow& f = p.flows.at(p.head.flow);
    if (p.num_in == 0) {
      p.aside = !f.expected;
      if (p.aside) f.kept.resize(p.head.num_bytes);
      if (f.expected) HOCKET_CHECK(p.head.num_bytes <= f.slot.size());
    }
    if (p.num_in < p.head.num_bytes)
      return std::span((p.aside ? f.kept.data() : f.slot.data()) + p.num_in,
                       p.head.num_bytes - p.num_in);
    finish(p, f);
  }
  return std::as_writable_bytes(std::span(&p.head, 1)).subspan(p.num_head);
}

void SocketTransport::took_in(Peer& p, size_t num_bytes) {
  (p.num_head < sizeof(Head) ? p.num_head : p.num_in) += num_bytes;
}

void SocketTransport::read_from(Peer& p) {
  for (;;) {
    const std::span<std::byte> to = next_in(p);
    const ssize_t num = recv(p.fd, to.data(), to.size(), 0);
    if (num <= 0) {
      if (num == 0 || (errno != EAGAIN && errno != EINTR)) lose(p);
      return;
    }
    took_in(p, static_cast<size_t>(num));
    if (p.num_head < sizeof(Head) || p.num_in < p.head.num_bytes) continue;
    next_in(p);
    return;  // if more has arrived, epoll reports it at the next progress()
  }
}

bool SocketTransport::progress_calls() {
  epoll_event events[16];
  const int num = epoll_wait(epoll_fd_, events, 16, 0);
  for (int i = 0; i < num; ++i) {
    const auto who = static_cast<int>(events[i].data.u32);
    if (who == rank_) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
      continue;
    }
    Peer& p = peers_[who];
    if (events[i].events & EPOLLERR) read_notices(p);
    if (events[i].events & EPOLLOUT) write_to(p);
    if (events[i].events & ~uint32_t{EPOLLOUT}) read_from(p);
  }
  return std::exchange(has_events_, false);
}

bool SocketTransport::progress() {
  return ring_ != nullptr ? progress_ring() : progress_calls();
}

void SocketTransport::wait(Duration max_wait) {
  if (has_events_ || max_wait.count() <= 0) return;
  const auto whole = std::chrono::floor<std::chrono::seconds>(max_wait);
  const timespec limit{.tv_sec = whole.count(), .tv_nsec = (max_wait - whole).count()};
  pollfd any[] = {
      {.fd = ring_ != nullptr ? ring_->fd() : epoll_fd_, .events = POLLIN, .revents = 0},
      {.fd = wake_fd_, .events = POLLIN, .revents = 0}};
  ppoll(any, ring_ != nullptr ? 2 : 1, &limit, nullptr);
  if (ring_ == nullptr || any[1].revents == 0) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
}

void SocketTransport::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_fd_, &one, sizeof(one));
}

}  // namespace hocket
