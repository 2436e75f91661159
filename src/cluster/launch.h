// Which rank this process is, of how many, and where rank 0 listens: from flags, or from the
// variables of whoever started it. A pure function of both.
//
//   threads       --ep-size 4                   and nothing else: all ranks are in this process
//   one machine   --ranks-per-node 4            this process starts the others
//   by hand       --nnodes 2 --node-rank R --dist-init-addr h0:5000 [--ranks-per-node P]
//   torchrun      RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT [LOCAL_WORLD_SIZE]
//   mpirun        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE; or PMIX_RANK with --ep-size
//   srun          SLURM_PROCID, SLURM_NTASKS; rank 0 is on the first host of SLURM_NODELIST
//   StatefulSet   --nnodes in a pod named NAME-R; rank 0 is NAME-0.$HOCKET_SERVICE
//
// Sources that name the same thing must agree; else the error names both. Two exceptions: a
// launcher of one process says nothing (`srun -n 1 hocket serve --ep-size 4`), and under mpirun the
// variables of Slurm are those of mpirun's own helpers.
// A launcher may start one process a rank, or one a node when --ranks-per-node says how many ranks
// each of them starts.
// A rank that another started (spawn.h) is told all this in one variable, before which nothing else
// counts.
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
  std::string dist_init_addr;  // empty: not given
};

struct LaunchEnvironment {
  std::map<std::string, std::string> variables;
  std::string host_name;
};
// Of this process.
LaunchEnvironment this_environment();

struct LaunchPlan {
  int num_ranks = 1;
  int rank = 0;       // of this process
  int num_local = 1;  // it is the first of so many ranks
  // Those are threads of this process; else it starts the others as processes (spawn.h).
  bool in_process = false;
  int ranks_per_node = 1;
  int local_rank = 0;  // of this process, among those of its host
  // Where rank 0 listens. Port 0: where it likes, for all ranks are started by it. Empty host: one
  // process needs none.
  HostPort init_addr;
  std::string source = "one process";  // for people: who said so

  bool spawned() const;  // by another rank of this host
};

// Errors: bad_value, usage; naming the flags and variables at fault.
Result<LaunchPlan> read_launch(const LaunchFlags& flags, const LaunchEnvironment& environment);

// "HOCKET_SPAWNED=...": makes read_launch() in a process of this environment a rank of the same
// service as `parent`, which knows the port of rank 0.
std::string spawned_variable(const LaunchPlan& parent, int rank);

// "h03" of "h[03-07,9],login". Empty for a list that names none.
std::string first_host(std::string_view node_list);

}  // namespace hocket
