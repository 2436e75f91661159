// Tests only: a port in front of another, whose link can be frozen or cut as a network's can.
// Thread: any; it forwards on a thread of its own.
#pragma once

#include <poll.h>

#include <atomic>
#include <list>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cluster/socket.h"

namespace hocket {

class TestProxy {
 public:
  // frozen: an outage; bytes stay where they are, and new connections are not accepted. cut: a
  // process that is not there; connections end, new ones too.
  enum class Link : uint8_t { up, frozen, cut };

  explicit TestProxy(uint16_t target) : target_(target) {
    HOCKET_CHECK(listener_.has_value());
    thread_ = std::thread([this] { run(); });
  }
  ~TestProxy() {
    stopping_ = true;
    thread_.join();
  }

  uint16_t port() const { return local_address(*listener_).port(); }
  void set(Link link) { link_ = link; }
  // Once num_bytes have come from the target, the link is `then`; negative: never.
  void set_after(int64_t num_bytes, Link then) {
    then_ = then;
    left_ = num_bytes;
  }
  // Flips a bit of the byte that the target sends behind num_bytes others.
  void damage_after(int64_t num_bytes) { until_damage_ = num_bytes; }
  static SocketAddress loopback(uint16_t port) {
    return resolve({.host = "127.0.0.1", .port = port})->front();
  }
  // Returns a port that was free a moment ago. It lies below those that the kernel gives to
  // clients, in a block of this program alone, so no other program takes it while a rank is down.
  // It comes again after all others of the block.
  static uint16_t free_port() {
    static const PortBlock block = take_port_block();
    static std::atomic<uint32_t> next = 0;
    uint16_t port = 0;
    do port = static_cast<uint16_t>(block.first + 1 + next++ % (kPortBlock - 1));
    while (!listen_on(loopback(port)));
    return port;
  }

 private:
  // A program listens on the first port of its block as long as it runs.
  struct PortBlock {
    Fd held;
    uint16_t first;
  };
  struct Pair {
    Fd near, far;
  };
  static constexpr uint16_t kPortBlock = 100;

  static PortBlock take_port_block() {
    for (uint16_t first = 10000;; first += kPortBlock) {
      HOCKET_CHECK(first < 16000);
      if (Result<Fd> held = listen_on(loopback(first))) return {std::move(*held), first};
    }
  }

  void run() {
    while (!stopping_) {
      const Link link = link_;
      if (link == Link::cut) pairs_.clear();
      if (link == Link::frozen) {
        ::poll(nullptr, 0, 2);
        continue;
      }
      std::vector<pollfd> fds{{listener_->get(), POLLIN, 0}};
      for (const Pair& p : pairs_) {
        fds.push_back({p.near.get(), POLLIN, 0});
        fds.push_back({p.far.get(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), 2);
      if ((fds[0].revents & POLLIN) != 0) accept(link);
      size_t i = 1;
      for (auto it = pairs_.begin(); it != pairs_.end() && i < fds.size(); i += 2) {
        const bool alive =
            move(it->near, it->far, fds[i]) && move_back(it->far, it->near, fds[i + 1]);
        it = alive ? std::next(it) : pairs_.erase(it);
      }
    }
  }
  void accept(Link link) {
    Fd near(::accept4(listener_->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!near || link == Link::cut) return;
    Fd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress to = loopback(target_);
    if (::connect(far.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0)
      return;
    pairs_.push_back({std::move(near), std::move(far)});
  }
  // Return false if one side has ended.
  static bool move(const Fd& from, const Fd& to, const pollfd& what) {
    if (what.revents == 0) return true;
    char buffer[16 << 10];
    const ssize_t got = ::recv(from.get(), buffer, sizeof buffer, 0);
    return got > 0 && ::send(to.get(), buffer, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }
  bool move_back(const Fd& from, const Fd& to, const pollfd& what) {
    if (what.revents == 0) return true;
    char buffer[16 << 10];
    const ssize_t got = ::recv(from.get(), buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    if (until_damage_ >= 0 && until_damage_ < got) buffer[until_damage_] ^= 1;
    if (until_damage_ >= 0) until_damage_ -= got;
    if (left_ >= 0 && (left_ -= got) < 0) link_ = then_.load();
    return ::send(to.get(), buffer, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const uint16_t target_;
  Result<Fd> listener_ = listen_on(loopback(0));
  std::list<Pair> pairs_;
  std::atomic<Link> link_{Link::up};
  std::atomic<Link> then_{Link::up};
  std::atomic<int64_t> left_{-1}, until_damage_{-1};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace hocket
