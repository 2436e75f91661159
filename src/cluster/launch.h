// Finds which rank this process is, of how many, and where rank 0 listens, from flags or from the
// variables of the launcher that started it. The result depends on these two alone.
//
//   threads       --ep-size 4                   and nothing else: all ranks are in this process
//   one machine   --ranks-per-node 4            this process starts the others
//   by hand       --nnodes 2 --node-rank R --dist-init-addr h0:5000 [--ranks-per-node P]
//   torchrun      RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT [LOCAL_WORLD_SIZE]
//   mpirun        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE; or PMIX_RANK with --ep-size
//   srun          SLURM_PROCID, SLURM_NTASKS; rank 0 is on the first host of SLURM_NODELIST
//   StatefulSet   --nnodes in a pod named NAME-R; rank 0 is NAME-0.$HOCKET_SERVICE
//
// With --cluster-store none of them needs to say where rank 0 is.
// Sources that name the same thing must agree; else the error names both. There are two exceptions:
// a launcher of one process is ignored (`srun -n 1 hocket serve --ep-size 4`), and under mpirun the
// variables of Slurm are ignored, because they belong to mpirun's own helpers.
// A launcher may start one process per rank, or one per node if --ranks-per-node says how many
// ranks each of them starts.
// A rank that another rank started (spawn.h) reads all this from one variable, which overrides
// everything else.
// Thread: any.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/socket.h"

namespace hocket {

inline constexpr uint16_t kDefaultClusterPort = 5000;

struct LaunchFlags {
  std::optional<int> nnodes, node_rank, ep_size, ranks_per_node;
  std::string dist_init_addr;  // empty if not given
  bool has_store = false;  // --cluster-store says where the coordinator is, whichever rank it is
};

struct LaunchEnvironment {
  std::map<std::string, std::string> variables;
  std::string host_name;
};
// Reads the environment and host name of this process.
LaunchEnvironment this_environment();

struct Launch {
  int num_ranks = 1;
  int rank = 0;       // rank of this process
  int num_local = 1;  // number of ranks that start here, of which `rank` is the first
  // True if those ranks are threads of this process; else it starts the others as processes
  // (spawn.h).
  bool in_process = false;
  int ranks_per_node = 1;
  int local_rank = 0;  // index of this process among the ranks of its host
  // The address where rank 0 listens. Port 0 takes any free port, because rank 0 starts all ranks.
  // An empty host means a single process, which needs no address. With a store it is not used.
  HostPort init_addr;
  std::string source = "one process";  // the flag or variable that decided, for people

  bool spawned() const;  // true if another rank of this host started this one
};

// Errors: bad_value, usage; both name the flags and variables at fault.
Result<Launch> read_launch(const LaunchFlags& flags, const LaunchEnvironment& environment);

// Returns "HOCKET_SPAWNED=...", which makes read_launch() in a child process return rank `rank` of
// the service of `parent`, which knows the port of rank 0.
std::string spawned_variable(const Launch& parent, int rank);

// Returns the first host of a Slurm list: "h03" of "h[03-07,9],login". Empty if it names none.
std::string first_host(std::string_view node_list);

}  // namespace hocket
