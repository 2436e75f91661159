// A rank's end of the UCX transport. Only ucx_*.cc include it; see ucx_transport.h.
//
//   tag   secret, 51 bits | source, 7 | lane, 4 | kind, 2     kind kGoodbye says goodbye
#pragma once

#ifdef HOCKET_HAS_UCX

#include <array>
#include <memory>
#include <vector>

#include "compute/comm/ucx_address.h"
#include "compute/comm/ucx_library.h"
#include "compute/comm/ucx_settings.h"
#include "compute/comm/ucx_transport.h"

namespace hocket {

class UcxEnd final : public UcxTransport {
 public:
  UcxEnd(const UcxLibrary& ucx, int rank, int num_ranks, const UcxOptions& options);
  UcxEnd(const UcxEnd&) = delete;
  UcxEnd& operator=(const UcxEnd&) = delete;
  ~UcxEnd() override;
  Result<void> open();

  int rank() const override { return rank_; }
  int num_ranks() const override { return static_cast<int>(peers_.size()); }
  TransportCaps caps() const override;
  void expect(const Channel& from, std::span<std::byte> slot) override;
  Result<std::optional<Arrival>> arrived(const Channel& from) override;
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override;
  Result<bool> sent(const Channel& to) override;
  void withdraw() override;
  bool progress() override;
  void wait(Duration max_wait) override;
  void wake() override;
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

  std::span<const std::byte> address() const override { return address_; }
  void set_secrets(std::span<const Secret> of_ranks) override;
  std::expected<void, UnreachableRank> connect(
      std::span<const std::span<const std::byte>> addresses) override;
  std::string describe() const override;

 private:
  struct Flow {  // a channel in both directions
    UcxEnd* end = nullptr;
    int peer = 0;
    // The incoming message.
    void* receiving = nullptr;
    std::span<std::byte> slot;
    bool expected = false, landed = false;
    ucs_status_t in_status = UCS_OK;
    Arrival arrival;
    // The outgoing message.
    bool is_sending = false;
    ucs_status_t out_status = UCS_OK;
    std::array<ucp_dt_iov_t, kMaxPieces> out{};
  };
  struct Peer {
    UcxEnd* end = nullptr;
    int rank = 0;
    Secret secret;
    ucp_ep_h endpoint = nullptr;
    bool tells_failures = false;  // the endpoint reports failures and can be closed by force
    int process = -1;             // descriptor that is readable when the peer's process has ended
    bool has_ended = false;
    void* goodbye = nullptr;  // request for its last message, while it is awaited
    std::string lost;         // the reason as half a sentence; empty: not lost
    std::array<Flow, static_cast<size_t>(kMaxLanes* kNumMessageKinds)> flows;
  };
  static constexpr int kGoodbye = kNumMessageKinds;  // a message kind

  Peer& peer(int rank);
  Flow& flow(const Channel& channel);
  ucp_tag_t tag_in(const Peer& peer, int lane, int kind) const;
  ucp_tag_t tag_out(const Peer& peer, int lane, int kind) const;
  Result<void> reachable(const Peer& peer) const;
  Result<void> connect_to(Peer& peer, const RankAddress& own, std::span<const std::byte> address);
  void await_goodbye(Peer& peer);
  void landed(Flow& flow, ucs_status_t status, size_t num_bytes);
  void lose(Peer& peer, std::string why);
  void note_ends();
  void drop_early_messages();
  void expect_no_more();
  bool is_busy() const;  // true while slots or parts of the owner are in use
  // Drives transfers until done() returns true, for at most `max_wait`. Returns the last done().
  template <class Done>
  bool until(Duration max_wait, Done done);
  void sleep(Duration max_wait);
  void say_goodbye();
  void close();

  static void on_received(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);
  static void on_sent(void*, ucs_status_t, void*);
  static void on_goodbye(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);
  static void on_dropped(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);
  static void on_failure(void*, ucp_ep_h, ucs_status_t);

  const UcxLibrary& ucx_;
  const int rank_;
  const UcxOptions options_;
  const UcxSettings settings_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1, wake_fd_ = -1, epoll_fd_ = -1;
  std::vector<std::byte> address_;
  std::vector<Peer> peers_;  // indexed by rank; this rank's own element is unused
  bool has_events_ = false;  // something moved since the last progress()
};

}  // namespace hocket

#endif
