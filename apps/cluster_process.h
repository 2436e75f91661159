// This process as one rank of a service of several processes: it starts the other ranks of its
// host, rank 0 tells how far all are, and who started others ends when one of them has ended. It
// starts none again: that is for whoever started this one (systemd, Slurm, Kubernetes), for the
// whole host at once.
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
  // Changes the settings to this rank's part: its port and its cores. Pins the calling thread to
  // them, and so all threads that it makes later. `arguments`: those of serve, for the ranks that
  // this process starts.
  // Errors: bad_value, naming the flag, with settings.strict also for a service that strangers may
  // join; those of read_cluster_token.
  static Result<std::unique_ptr<ClusterProcess>> create(const LaunchPlan& plan,
                                                        ServerSettings& settings,
                                                        Arguments arguments);
  ClusterProcess(const ClusterProcess&) = delete;
  ClusterProcess& operator=(const ClusterProcess&) = delete;

  // For Engine::Options. It starts the others of this host when the engine has met rank 0, so this
  // object outlives the engine.
  ClusterLaunch launch();
  int rank() const { return plan_.rank; }
  // Set if whoever reaches rank 0 may join.
  const std::optional<SlowPath>& open_to_strangers() const { return open_to_strangers_; }

  // Rank 0 shows the loading of all; a rank that another started shows none.
  bool shows_own_loading() const { return plan_.rank != 0 && !plan_.spawned(); }
  // On rank 0 a line every other second, while something changes and not all are loaded.
  void tell_loading();
  // A few times a second. Errors: lost_rank: a rank that this process started has ended.
  Result<void> watch();
  // To the ranks that this process started.
  void forward_signal(int number);
  // The ranks that this process started may take so long to end; then they are killed.
  Duration patience() const { return others_ ? patience_ : Duration{}; }

 private:
  ClusterProcess(const LaunchPlan& plan, Arguments arguments)
      : plan_(plan), arguments_(std::move(arguments)) {}
  Result<void> read_options(const ServerSettings& settings);
  Result<void> take_cores(ServerSettings& settings);
  Result<void> start_others(const ControlPlane& plane);

  const LaunchPlan plan_;
  const Arguments arguments_;
  ClusterOptions control_;
  std::optional<SlowPath> open_to_strangers_;
  std::vector<CoreSet> cores_;  // of the ranks of this host; empty: not pinned
  int num_numa_nodes_ = 1;
  Duration patience_{};  // of the end, for the ranks that it started
  const ControlPlane* plane_ = nullptr;
  TimePoint told_at_{};
  std::string told_;
  std::optional<LocalRanks> others_;
};

}  // namespace hocket
