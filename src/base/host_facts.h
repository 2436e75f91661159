// Reads the kernel's facts about this host that matter for serving: clocks, governors, NUMA nodes,
// limits of the process. A fact that cannot be read is empty or nullopt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/cgroup.h"

namespace hocket {

struct NumaNode {
  int id = 0;
  std::string cpus;  // for example "0-15,32-47"
  int64_t memory_bytes = 0, free_bytes = 0;
};

struct HostFacts {
  std::string clock_source;            // "tsc", "hpet", ...
  std::vector<std::string> governors;  // governors of all processors, each once, sorted
  std::string huge_pages;              // "always", "madvise", "never"
  std::vector<NumaNode> nodes;
  std::optional<int64_t> numa_balancing, overcommit_memory, listen_backlog;
  std::optional<int64_t> swap_bytes, swap_free_bytes;
  std::optional<int64_t> shared_memory_bytes;  // size of /dev/shm
  std::optional<double> load;                  // processes that run or wait, over the last minute
  CgroupLimits cgroup;

  // Limits of this process; nullopt: unlimited.
  std::optional<int64_t> open_files, max_open_files, locked_memory_bytes;
};

// `root` is "/"; tests use a tree of their own, from which everything except the limits of the
// process is read.   Thread: any.
HostFacts read_host_facts(const std::filesystem::path& root = "/");

}  // namespace hocket
