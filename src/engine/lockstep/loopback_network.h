// The network of ranks that are threads of one process: ends of one hub, and a shared loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/lockstep/network.h"

namespace hocket {

// Ends the common work of all ranks of one process: the first error counts, and every rank returns
// it. Thread: any.
class SharedError {
 public:
  // Sets the ends whose wait() an error ends. Call it before any thread starts.
  void bind(std::vector<Transport*> ends) { ends_ = std::move(ends); }
  // Sets the error; only the first call counts.
  void lose(Error why);
  std::optional<Error> lost() const;
  const std::atomic<uint32_t>& flag() const { return lost_; }

 private:
  std::vector<Transport*> ends_;
  std::atomic<uint32_t> lost_{0};
  mutable Mutex mutex_;
  std::optional<Error> why_ HOCKET_GUARDED_BY(mutex_);
};

// It has one link; after that is lost there is no other.
class LoopbackNetwork final : public RankNetwork {
 public:
  // The loss and the hub outlive it.
  LoopbackNetwork(std::unique_ptr<Transport> end, SharedError& loss, std::string name);

  int rank() const override { return end_->rank(); }
  int num_ranks() const override { return end_->num_ranks(); }
  std::string describe() const override { return name_; }
  Result<std::optional<RankSet>> members(Duration max_wait) override;
  Result<std::optional<Link>> join(const RankSet& ranks, Duration max_wait) override;
  void leave() override {}
  void report_lost(int peer, const Error& why) override;
  std::optional<Error> lost() const override { return loss_.lost(); }
  const std::atomic<uint32_t>& abort() const override { return loss_.flag(); }
  OwnHeartbeat& own_heartbeat() override { return own_heartbeat_; }
  void wake() override { end_->wake(); }
  bool can_rejoin() const override { return false; }
  // The network cannot inform the others. All ranks are asked to stop, one soon after another, and
  // stop together.
  bool others_can_serve() const override { return false; }
  Transport& end() { return *end_; }

 private:
  const std::unique_ptr<Transport> end_;
  SharedError& loss_;
  const std::string name_;
  OwnHeartbeat own_heartbeat_;
};

}  // namespace hocket
