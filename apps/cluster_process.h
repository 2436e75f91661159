// This process as one rank of a service of several processes. The first rank of a host starts the
// other ranks of that host and ends when one of them has ended. It never restarts a rank: systemd,
// Slurm or Kubernetes restarts the whole host. Rank 0 logs how far all ranks have loaded.
// Owner: serve. Thread: the main one, which must live as long as the ranks that it started.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "cluster/spawn.h"
#include "engine/engine.h"

namespace hocket {

class ClusterProcess {
 public:
  // Changes the settings to this rank's port and cores. Pins the calling thread to these cores, and
  // with it all threads that it makes later. `arguments` are those of serve; ranks that this
  // process starts get the same.
  // Errors: bad_value, naming the flag (with settings.strict also for a service that any host may
  // join); those of read_cluster_token.
  static Result<std::unique_ptr<ClusterProcess>> create(const Launch& launch,
                                                        ServerSettings& settings,
                                                        Arguments arguments);
  ClusterProcess(const ClusterProcess&) = delete;
  ClusterProcess& operator=(const ClusterProcess&) = delete;

  // Returns the value for Engine::Options. The engine calls back into this object when it has
  // joined rank 0, which starts the other ranks of this host. So this object outlives the engine.
  ClusterLaunch launch();
  int rank() const { return launch_.rank; }
  // Set if every host that reaches rank 0 may join (--insecure-cluster without a token).
  const std::optional<SlowPath>& open_to_strangers() const { return open_to_strangers_; }

  // True if this rank shows its own loading. Rank 0 shows that of all ranks, and a rank that
  // another rank started shows none. With a store it is not known beforehand which rank shows all.
  bool shows_own_loading() const {
    return (launch_.rank != 0 || control_.store) && !launch_.spawned();
  }
  // Logs on the rank that coordinates how far all ranks have loaded: at most every 2 s, and only if
  // it changed.
  void log_loading();
  // Calls log_loading() and looks after the ranks that this process started; call it a few times a
  // second. Errors: lost_rank, if one of these ranks has ended.
  Result<void> watch();
  // Sends the signal to the ranks that this process started.
  void forward_signal(int number);
  // Returns the time that the ranks started by this process have to end before they are killed.
  Duration patience() const { return others_ ? patience_ : Duration{}; }

 private:
  ClusterProcess(const Launch& launch, Arguments arguments)
      : launch_(launch), arguments_(std::move(arguments)) {}
  Result<void> read_options(const ServerSettings& settings);
  Result<void> read_tls(const ParallelSettings& parallel);
  Result<void> read_store(const ParallelSettings& parallel);
  Result<void> read_tolerance(const ParallelSettings& parallel);
  Result<void> take_cores(ServerSettings& settings);
  Result<void> start_others(const ControlPlane& plane);

  const Launch launch_;
  const Arguments arguments_;
  ClusterOptions control_;
  std::optional<SlowPath> open_to_strangers_;
  std::vector<CoreSet> cores_;  // cores of each rank of this host; empty: not pinned
  int num_numa_nodes_ = 1;
  Duration patience_{};  // see patience()
  const ControlPlane* plane_ = nullptr;
  TimePoint logged_at_{};
  std::string last_line_;
  std::optional<LocalRanks> others_;
};

}  // namespace hocket
