// A transport over plain TCP sockets, with which UCX is compared. Each pair of ranks has one
// connection, sockets never block, and the kernel chooses its buffer sizes. For benches only: it
// has no epochs, does not announce its end, and trusts its peers. Thread: one; wake() any.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "compute/comm/transport.h"

namespace hocket {

class SocketTransport final : public Transport {
 public:
  // Listens on `host`, as "10.0.0.2".   Errors: io.
  static Result<std::unique_ptr<SocketTransport>> create(int rank, int num_ranks,
                                                         const std::string& host);
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;
  ~SocketTransport() override;
  // Returns the address to send to all peers. Then all ranks call connect() with the addresses of
  // all, by rank.   Errors: lost_rank.
  std::vector<std::byte> address() const;
  Result<void> connect(std::span<const std::vector<std::byte>> addresses);

  int rank() const override { return rank_; }
  int num_ranks() const override { return static_cast<int>(peers_.size()); }
  TransportCaps caps() const override { return {.name = "sockets", .moves_by_itself = true}; }
  void expect(const Channel& from, std::span<std::byte> slot) override;
  Result<std::optional<Arrival>> arrived(const Channel& from) override;
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override;
  Result<bool> sent(const Channel& to) override;
  void withdraw() override;
  bool progress() override;
  void wait(Duration most) override;
  void wake() override;
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

 private:
  // On the wire: | Head | num_bytes of parts |, one message after another; `flow` names the
  // channel.
  struct Head {
    uint64_t flow = 0, num_bytes = 0;
  };
  struct Flow {
    bool expected = false, landed = false, early = false, sending = false;
    std::span<std::byte> slot;
    std::vector<std::byte> kept;  // a message that came before expect()
    Arrival arrival;
    Head head;
    std::array<iovec, kMaxPieces + 1> out{};
    size_t num_out = 0, next_out = 0;
  };
  struct Peer {
    int fd = -1;
    bool lost = false, wants_out = false;
    std::array<Flow, static_cast<size_t>(kMaxLanes* kNumMessageKinds)> flows;
    std::deque<Flow*> queue;
    Head head;
    size_t num_head = 0, num_in = 0;  // bytes read so far of a message's head and body
    bool aside = false;               // it goes to Flow::kept, since it was not expected
  };

  SocketTransport(int rank, int num_ranks);
  Flow& flow(const Channel& channel);
  bool adopt(int peer, int fd);
  void read_from(Peer& peer);
  void write_to(Peer& peer);
  void finish(Peer& peer, Flow& flow);

  const int rank_;
  int listener_ = -1, epoll_fd_ = -1, wake_fd_ = -1;
  std::vector<Peer> peers_;
  bool has_news_ = false;
};

}  // namespace hocket
