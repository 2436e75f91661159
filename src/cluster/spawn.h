// Divides the cores of one machine among its ranks, and starts the processes of the ranks that this
// one starts. Cores of one NUMA node stay together as far as the numbers allow; a rank on one node
// of several also takes its memory there.
// Thread: LocalRanks belongs to the thread that made it, which must live as long as the ranks
// should: the kernel ends them with that thread, so that none outlives a killed parent.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine.h"
#include "base/result.h"

namespace hocket {

// The place of a logical processor in the machine.
struct CpuLocation {
  int cpu = 0, node = 0, package = 0, core = 0;
};
// Returns the locations of the processors that this process may use at once (Machine::num_cores of
// them). If the system does not say where one is, it counts as a core of node 0.
std::vector<CpuLocation> read_cpu_locations(const Machine& machine);

// The processors of one rank, one of each core first, and the NUMA nodes they are on.
struct CoreSet {
  std::vector<int> cpus, nodes;

  bool operator==(const CoreSet&) const = default;
};
// Returns one set per rank. The sets do not overlap if there are as many cores as ranks; else ranks
// share cores in turn. A set is whole nodes, or an equal part of one, where the numbers divide;
// else an equal part of all cores.
std::vector<CoreSet> share_cores(std::vector<CpuLocation> locations, int num_ranks);

// Pins the calling thread, and threads that it makes later, to the set. Binds its memory too if
// `num_nodes` > 1 and the set is on one node. Errors: io.
Result<void> pin_self(const CoreSet& cores, int num_nodes);

struct RankProgram {
  int rank = 0;
  std::vector<std::string> arguments;  // behind the program's name
  std::vector<std::string> variables;  // "NAME=value", besides those of our environment
  CoreSet cores;                       // not pinned if it has no cpus
};

class LocalRanks {
 public:
  // Starts `path` once for each of `programs`, in a process group of its own: a terminal's Ctrl-C
  // reaches only this process, and signal() passes it on. Errors: io, naming the rank (the ranks
  // started before it are ended).
  static Result<LocalRanks> spawn(const std::string& path, const std::vector<RankProgram>& programs,
                                  int num_nodes);
  LocalRanks(LocalRanks&&) noexcept = default;
  LocalRanks& operator=(LocalRanks&&) = delete;
  // Sends SIGTERM unless signal() was called, waits for `patience`, then sends SIGKILL. Returns
  // when all children have ended.
  ~LocalRanks();

  // A child that has ended. poll() returns each once, and nullopt if there is none; it never waits.
  struct End {
    int rank = 0;
    int status = 0;    // the exit status; 128 + the signal for a killed child
    std::string text;  // "rank 2 was ended by signal 9 (Killed)"
  };
  std::optional<End> poll();
  // Sends a signal to all live children; used for the signals that this process got.
  void signal(int number);
  // Returns the process of a rank; -1 if it has ended or was not started here.
  pid_t pid(int rank) const;

  Duration patience = std::chrono::seconds(10);

 private:
  struct Child {
    int rank = 0;
    pid_t pid = -1;
  };
  LocalRanks() = default;
  std::vector<Child> children_;
  bool was_signaled_ = false;
};

// Returns the file of the running program.
Result<std::string> own_program();

}  // namespace hocket
