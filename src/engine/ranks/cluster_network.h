// The network of ranks that are processes: found by the control plane, reached over UCX.
//
//   join   whole view -> a transport of its epoch -> store: addr/EPOCH/RANK = terms, address
//          -> the others' -> connect -> enter(epoch)
//   lose   the control plane may know better who is to blame: it is asked first
//
// A rank that is gone ends its connections, then those who give up the step end theirs, so who is
// seen to hang up first need not be the culprit. The control plane decides, within its limits.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/control_plane.h"
#include "compute/comm/ucx_transport.h"
#include "engine/ranks/network.h"

namespace hocket {

class ClusterNetwork final : public RankNetwork {
 public:
  struct Options {
    UcxOptions ucx;     // its epoch is set here
    std::string terms;  // what must be equal of all ranks for messages to fit, in words
    // Of the control plane, to find who is lost when the network has noticed somebody.
    Duration verdict = std::chrono::milliseconds(800);
  };
  // Loads UCX, which sets variables of this process: before other threads start.
  // Errors: io, without UCX.   `control` outlives it.
  static Result<std::unique_ptr<ClusterNetwork>> create(ControlPlane& control, Options options);

  int rank() const override { return control_.self().rank; }
  int num_ranks() const override { return control_.self().num_ranks; }
  std::string describe() const override;
  Result<std::optional<Link>> join(Duration most) override;
  void part() override;
  void lose(int peer, const Error& why) override;
  std::optional<Error> lost() const override;
  std::optional<Error> failure() const override;
  const std::atomic<uint32_t>& abort() const override { return control_.aborted(); }
  Pulse& pulse() override { return control_.pulse(); }
  void wake() override;
  bool may_leave_others() const override { return true; }  // the control plane tells them

 private:
  ClusterNetwork(ControlPlane& control, Options options, std::string version);
  std::string key(uint32_t epoch, int rank) const;
  Result<void> open(uint32_t epoch);
  // Whether all have said where they are.
  Result<bool> hear_others(TimePoint until);
  Result<bool> refuse(int rank, std::string_view terms, TimePoint until);
  std::string name_of_rank(int rank) const;
  void close();

  ControlPlane& control_;
  const Options options_;
  const std::string version_;
  uint32_t epoch_ = 0;                  // of transport_
  std::vector<std::string> addresses_;  // by rank; empty: not heard yet
  mutable std::mutex mutex_;            // of what follows, which other threads see
  std::unique_ptr<UcxTransport> transport_;
  bool linked_ = false;
  int awaited_ = -1;  // the rank that has not said where it is
  std::optional<Error> refused_;
};

}  // namespace hocket
