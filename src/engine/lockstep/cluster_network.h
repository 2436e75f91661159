// The network of ranks in several processes: found by the control plane, reached over UCX.
//
//   join   view that serves -> a transport of its epoch -> store: addr/EPOCH/RANK = terms, nonce,
//          address -> the others' -> secrets -> connect -> enter(epoch)
//   lose   waits first for the control plane, which may know better which rank is at fault
//
// UCX does not authenticate its peers, so each pair of ranks has a secret in each direction, which
// every message carries (UcxTransport::set_secrets): an HMAC over epoch, ranks and both nonces,
// with a key from the cluster's token. Nonces are new in every epoch, so messages of an earlier one
// are not taken.
//
// When a rank's process ends, so do its connections, and ranks that give up the step then end
// theirs, so the first connection that ends need not be that of the lost rank. The control plane
// decides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/control_plane.h"
#include "cluster/wire.h"
#include "compute/comm/ucx_transport.h"
#include "engine/lockstep/network.h"

namespace hocket {

struct RankNonce {
  int rank = 0;
  Nonce nonce;
};

// Returns the secret of messages from one rank to another.
uint64_t secret_of_rows(const Proof& key, uint32_t epoch, const RankNonce& from,
                        const RankNonce& to);

class ClusterNetwork final : public RankNetwork {
 public:
  struct Options {
    UcxOptions ucx;  // its epoch is set here
    // In words, what must be equal for messages to fit: Heartbeat::terms, at most kMaxNameBytes.
    std::string terms;
    // The control plane may take this long to name the lost rank after the network failed.
    Duration verdict = std::chrono::milliseconds(800);
    // Lifetime of an address in the store. It expires by itself, because a process that has ended
    // cannot erase it.
    Duration address_lifetime = std::chrono::minutes(10);
  };
  // Loads UCX, which sets variables of this process: call it before other threads start. `control`
  // outlives the network. Errors: io, without UCX.
  static Result<std::unique_ptr<ClusterNetwork>> create(ControlPlane& control, Options options);

  int rank() const override { return control_.self().rank; }
  int num_ranks() const override { return control_.self().num_ranks; }
  std::string describe() const override;
  Result<std::optional<RankSet>> members(Duration max_wait) override;
  Result<std::optional<Link>> join(const RankSet& ranks, Duration max_wait) override;
  void leave() override;
  bool pauses_others() const override { return control_.pauses_others(); }
  void announce_end() override { control_.leave(); }
  void report_lost(int peer, const Error& why) override;
  std::optional<Error> lost() const override;
  bool serves_soon() const override;
  std::optional<Error> failure() const override;
  const std::atomic<uint32_t>& abort() const override { return control_.aborted(); }
  OwnHeartbeat& own_heartbeat() override { return control_.own_heartbeat(); }
  void wake() override;
  bool can_rejoin() const override { return true; }
  // The control plane informs the others.
  bool others_can_serve() const override { return true; }

 private:
  ClusterNetwork(ControlPlane& control, Options options, std::string version);
  std::string key(uint32_t epoch, int rank) const;
  Result<void> open(uint32_t epoch);
  Result<void> publish_address();
  // True if all these ranks have published their addresses.
  Result<bool> read_addresses(const RankSet& ranks, TimePoint until);
  std::vector<UcxTransport::Secret> secrets() const;
  Result<bool> refuse(int rank, bool is_right, std::string_view terms, TimePoint until);
  std::string name_of_rank(int rank) const;
  std::optional<Error> refusal() const;
  UcxTransport* transport() const;
  void close();

  ControlPlane& control_;
  const Options options_;
  const std::string version_;
  uint32_t epoch_ = 0;  // epoch of transport_
  // when its address is set again, while it connects to the others
  TimePoint publish_at_{};
  std::vector<std::string> addresses_;  // indexed by rank; empty: not known yet
  std::vector<Nonce> nonces_;           // indexed by rank
  mutable Mutex mutex_;                 // other threads read the members below
  // Changed by the engine's thread alone, which may therefore use what it points to.
  std::unique_ptr<UcxTransport> transport_ HOCKET_GUARDED_BY(mutex_);
  bool linked_ HOCKET_GUARDED_BY(mutex_) = false;
  int awaited_ HOCKET_GUARDED_BY(mutex_) = -1;  // the rank whose address is missing
  std::optional<Error> refused_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
