// The ranks of one machine: which cores each has, and processes for those that this one starts.
// Cores of one NUMA node stay together as far as the numbers allow; a rank on one node of several
// also takes its memory there.
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

// Where a logical processor is.
struct CpuPlace {
  int cpu = 0, node = 0, package = 0, core = 0;
};
// Of the processors this process may use at once (Machine::num_cores of them). Where the system
// does not say, each is a core of node 0.
std::vector<CpuPlace> read_cpu_places(const Machine& machine);

// The processors of one rank, one of each core first, and the NUMA nodes they are on.
struct CoreSet {
  std::vector<int> cpus, nodes;

  bool operator==(const CoreSet&) const = default;
};
// One set a rank, without overlap where there are as many cores as ranks; else ranks share cores in
// turn. Whole nodes, or equal parts of one, where the numbers divide; else equal parts of all
// cores.
std::vector<CoreSet> share_cores(std::vector<CpuPlace> places, int num_ranks);

// Keeps the calling thread, and threads it makes from now on, to the set; and its memory where
// `num_nodes` > 1 and the set is on one. Errors: io.
Result<void> pin_self(const CoreSet& cores, int num_nodes);

struct RankProgram {
  int rank = 0;
  std::vector<std::string> arguments;  // behind the program's name
  std::vector<std::string> variables;  // "NAME=value", besides those of our environment
  CoreSet cores;                       // no cpus: not pinned
};

class LocalRanks {
 public:
  // Starts `path` once for each, in a process group of its own: a terminal's Ctrl-C comes to us
  // alone, and by signal() to them. Errors: io, naming the rank (those started before it are
  // ended).
  static Result<LocalRanks> spawn(const std::string& path, const std::vector<RankProgram>& programs,
                                  int num_nodes);
  LocalRanks(LocalRanks&&) noexcept = default;
  LocalRanks& operator=(LocalRanks&&) = delete;
  // SIGTERM, unless they were told to end by signal(); `patience`; SIGKILL. Returns when all have
  // ended.
  ~LocalRanks();

  // One that ended since, if any; never waits. Each is told once.
  struct End {
    int rank = 0;
    int status = 0;    // the exit status; 128 + the signal for one that was killed
    std::string text;  // "rank 2 was ended by signal 9 (Killed)"
  };
  std::optional<End> poll();
  // To all that live: for signals that this process got.
  void signal(int number);
  // The process of a rank; -1 where it has ended or was not started here.
  pid_t pid(int rank) const;

  Duration patience = std::chrono::seconds(10);

 private:
  struct Child {
    int rank = 0;
    pid_t pid = -1;
  };
  LocalRanks() = default;
  std::vector<Child> children_;
  bool told_to_end_ = false;
};

// The file of the running program.
Result<std::string> own_program();

}  // namespace hocket
