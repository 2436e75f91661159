// What the kernel says of this host that bears on serving: clocks, governors, NUMA nodes, limits of
// the process. What cannot be read is unknown: empty, or nothing.
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
  std::string cpus;  // "0-15,32-47"
  int64_t memory_bytes = 0, free_bytes = 0;
};

struct HostFacts {
  std::string clock_source;            // "tsc", "hpet", ...
  std::vector<std::string> governors;  // of all processors, each once, sorted
  std::string huge_pages;              // "always", "madvise", "never"
  std::vector<NumaNode> nodes;
  std::optional<int64_t> numa_balancing, overcommit_memory, listen_backlog;
  std::optional<int64_t> swap_bytes, swap_free_bytes;
  std::optional<int64_t> shared_memory_bytes;  // what /dev/shm may hold
  std::optional<double> load;                  // processes that run or wait, over the last minute
  CgroupLimits cgroup;

  // Limits of this process; nothing: unlimited.
  std::optional<int64_t> open_files, open_files_most, locked_memory_bytes;
};

// `root` is "/"; tests have a tree of their own, from which all but the limits of the process is
// read.   Thread: any.
HostFacts read_host_facts(const std::filesystem::path& root = "/");

}  // namespace hocket
