// One of the other ranks, as an end of UCX sees it: the connection, its messages on all channels,
// and why it is lost. Only ucx_*.cc include it; see ucx_transport.h.
//
//   tag   secret, 51 bits | source, 7 | lane, 4 | kind, 2     kind kGoodbye says goodbye
//
// Owner: UcxEnd. Thread: one at a time.
#pragma once

#ifdef HOCKET_HAS_UCX

#include <array>
#include <string>
#include <vector>

#include "compute/comm/ucx_address.h"
#include "compute/comm/ucx_context.h"
#include "compute/comm/ucx_transport.h"

namespace hocket {

class UcxPeer {
 public:
  using Secret = UcxTransport::Secret;
  using Arrival = Transport::Arrival;

  // The context outlives it.
  UcxPeer(UcxContext& context, int own_rank, int rank);
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;

  int rank() const { return rank_; }
  // To be called before connect().
  void set_secret(const Secret& secret);
  // Connects to the rank that has published `address`; to be called once. own: that of this rank.
  // Errors: lost_rank, bad_value, as half a sentence.
  Result<void> connect(const RankAddress& own, std::span<const std::byte> address);

  // Returns the rank that a tag names as its sender.
  static size_t source_of(ucp_tag_t tag);
  // Returns true if the peer may have sent a message with this tag.
  bool may_have_sent(ucp_tag_t tag) const;

  // As those of Transport, on a channel of this rank.
  void expect(const Channel& from, std::span<std::byte> slot);
  Result<std::optional<Arrival>> arrived(const Channel& from);
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts);
  Result<bool> sent(const Channel& to);

  // The rank is lost, for a reason as half a sentence, unless it was before.
  void lose(std::string why);
  // Its process has ended. It is lost with lose_ended(), so that earlier messages are seen first.
  void note_end();
  void lose_ended() {
    if (has_ended_) lose("its process has ended");
  }

  bool is_busy() const;  // true while slots or parts of the owner are in use
  // Cancels what is expected; is_busy() says when nothing is written any more.
  void expect_no_more();
  // Forgets the messages of all channels. Precondition: !is_busy(), or the context is closed.
  void forget_messages();
  // Begin to say goodbye after all messages, and to close the connection. They add what is under
  // way to `requests`, which the caller awaits and frees.
  void say_goodbye(std::vector<void*>& requests);
  void begin_close(std::vector<void*>& requests);
  // The context is closed.
  void end_close() { endpoint_ = nullptr; }

 private:
  struct Flow {  // a channel in both directions
    UcxPeer* peer = nullptr;
    // The incoming message.
    void* receiving = nullptr;
    std::span<std::byte> slot;
    bool expected = false, landed = false;
    ucs_status_t in_status = UCS_OK;
    Arrival arrival;
    // The outgoing message.
    bool is_sending = false;
    std::array<ucp_dt_iov_t, kMaxPieces> out{};

    void land(ucs_status_t status, size_t num_bytes);
  };
  static constexpr int kGoodbye = kNumMessageKinds;  // a message kind

  Flow& flow(const Channel& channel);
  ucp_tag_t tag_in(int lane, int kind) const;
  ucp_tag_t tag_out(int lane, int kind) const;
  Result<void> reachable() const;
  void await_goodbye();
  void lose_connection(ucs_status_t status);
  const UcxLibrary& ucx() const { return context_.ucx(); }

  static void on_received(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);
  static void on_sent(void*, ucs_status_t, void*);
  static void on_goodbye(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);
  static void on_failure(void*, ucp_ep_h, ucs_status_t);

  UcxContext& context_;
  const int own_rank_, rank_;
  Secret secret_;
  ucp_ep_h endpoint_ = nullptr;
  bool tells_failures_ = false;  // the endpoint reports failures and can be closed by force
  int process_ = -1;             // descriptor that is readable when the peer's process has ended
  bool has_ended_ = false;
  void* goodbye_ = nullptr;  // request for its last message, while it is awaited
  std::string lost_;         // the reason as half a sentence; empty: not lost
  std::array<Flow, static_cast<size_t>(kMaxLanes* kNumMessageKinds)> flows_;
};

}  // namespace hocket

#endif
