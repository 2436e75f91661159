// A transport over plain TCP sockets, with which UCX is compared, in the ways that the kernel has
// to move bytes. Each pair of ranks has one connection, sockets never block, and the kernel chooses
// its buffer sizes. For benches only: it has no epochs, does not announce its end, and trusts its
// peers. Thread: one; wake() any.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/io_ring.h"
#include "compute/comm/transport.h"

namespace hocket {

// calls: send and recv of all that is left. zero_copy: the same with MSG_ZEROCOPY. ring: a request
// of io_uring for each message. ring_zero_copy: with its zero-copy send.
enum class SendMethod : uint8_t { calls, zero_copy, ring, ring_zero_copy };

class SocketTransport final : public Transport {
 public:
  struct Options {
    std::string host;  // where it listens, as "10.0.0.2"
    SendMethod way = SendMethod::calls;
  };
  // Errors: io (also if the kernel does not have the way).
  static Result<std::unique_ptr<SocketTransport>> create(int rank, int num_ranks,
                                                         const Options& options);
  SocketTransport(const SocketTransport&) = delete;
  SocketTransport& operator=(const SocketTransport&) = delete;
  ~SocketTransport() override;
  // Returns the address to send to all peers. Then all ranks call connect() with the addresses of
  // all, by rank.   Errors: lost_rank.
  std::vector<std::byte> address() const;
  Result<void> connect(std::span<const std::span<const std::byte>> addresses);

  int rank() const override { return rank_; }
  int num_ranks() const override { return static_cast<int>(peers_.size()); }
  TransportCaps caps() const override { return {.name = "sockets", .moves_by_itself = true}; }
  void expect(const Channel& from, std::span<std::byte> slot) override;
  Result<std::optional<Arrival>> arrived(const Channel& from) override;
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override;
  Result<bool> sent(const Channel& to) override;
  void withdraw() override;
  bool progress() override;
  void wait(Duration max_wait) override;
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
    bool written = false;  // all bytes are the kernel's
    int num_unfreed = 0;   // zero-copy sends whose bytes it may still read
    std::span<std::byte> slot;
    std::vector<std::byte> kept;  // a message that arrived before expect()
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
    bool aside = false;               // it is moved to Flow::kept, since it was not expected
    // The flows of the last zero-copy sends, by the number of the send.
    std::vector<Flow*> sent;
    uint32_t num_sent = 0;
    // The message that the kernel sends, if by a ring.
    bool is_sending = false;
    msghdr message{};
  };
  static constexpr uint32_t kMaxUnfreed = 1 << 16;  // sends of a peer

  SocketTransport(int rank, int num_ranks, SendMethod way);
  bool never_copies() const {
    return way_ == SendMethod::zero_copy || way_ == SendMethod::ring_zero_copy;
  }
  Flow& flow(const Channel& channel);
  bool adopt(int peer, int fd);
  void lose(Peer& peer);
  // Returns where the next bytes of a peer belong; finishes messages that are whole.
  std::span<std::byte> next_in(Peer& peer);
  void took_in(Peer& peer, size_t num_bytes);
  void finish(Peer& peer, Flow& flow);
  // Returns the rest of the first message to a peer.
  msghdr next_out(Peer& peer);
  void took_out(Peer& peer, size_t num_bytes);
  static void free_if_sent(Flow& flow);
  // calls, zero_copy
  void read_from(Peer& peer);
  void write_to(Peer& peer);
  void read_notices(Peer& peer);
  bool progress_calls();
  // ring, ring_zero_copy
  void request_in(Peer& peer);
  void request_out(Peer& peer);
  void complete(const IoRing::Completion& completion);
  bool progress_ring();

  const int rank_;
  const SendMethod way_;
  int listener_ = -1, epoll_fd_ = -1, wake_fd_ = -1;
  std::vector<Peer> peers_;
  std::unique_ptr<IoRing> ring_;
  bool has_events_ = false;
};

}  // namespace hocket
