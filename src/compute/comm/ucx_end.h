// A rank's end of the UCX transport: a context, and a peer for each other rank. Only ucx_*.cc
// include it; see ucx_transport.h.
#pragma once

#ifdef HOCKET_HAS_UCX

#include <deque>
#include <vector>

#include "compute/comm/ucx_context.h"
#include "compute/comm/ucx_peer.h"
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
  void expect(const Channel& from, std::span<std::byte> slot) override {
    peer(from.peer).expect(from, slot);
  }
  Result<std::optional<Arrival>> arrived(const Channel& from) override {
    return peer(from.peer).arrived(from);
  }
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override {
    return peer(to.peer).send(to, parts);
  }
  Result<bool> sent(const Channel& to) override { return peer(to.peer).sent(to); }
  void withdraw() override;
  bool progress() override;
  void wait(Duration max_wait) override;
  void wake() override { context_.wake(); }
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

  std::span<const std::byte> address() const override { return address_; }
  void set_secrets(std::span<const Secret> of_ranks) override;
  std::expected<void, UnreachableRank> connect(
      std::span<const std::span<const std::byte>> addresses) override;
  std::string describe() const override;

 private:
  UcxPeer& peer(int rank);
  void drop_early_messages();
  void drop_messages_of_strangers();
  bool is_of_peer(ucp_tag_t tag) const;
  void drop(ucp_tag_message_h message);
  void note_ends(const UcxContext::Readable& readable);
  // Drives transfers until done() returns true, for at most Options::patience. Returns the last
  // done().
  template <class Done>
  bool until(Done done);
  // Waits until the requests are done, as until() does, and frees them.
  void finish(const std::vector<void*>& requests);
  void say_goodbye();
  void close();

  static void on_dropped(void*, ucs_status_t, const ucp_tag_recv_info_t*, void*);

  const UcxLibrary& ucx_;
  const int rank_;
  const UcxOptions options_;
  UcxContext context_;
  std::vector<std::byte> address_;
  bool is_connected_ = false;  // peers may have sent messages, whose secrets are known
  std::deque<UcxPeer> peers_;  // indexed by rank; this rank's own element is unused
};

}  // namespace hocket

#endif
