// Reads the limits that a container sets for this process: cgroup v2, or v1's memory and cpu
// controllers. Source: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hocket {

struct CgroupLimits {
  std::optional<int64_t> memory_bytes;  // the lowest limit from this process's group up to the root
  // The least limit - use; reclaimable file pages count as free.
  std::optional<int64_t> memory_headroom_bytes;
  std::optional<double> cpus;  // the lowest quota / period
};

// `membership` is /proc/self/cgroup, `root` /sys/fs/cgroup. A file that cannot be read sets no
// limit. Thread: any.
CgroupLimits read_cgroup_limits(const std::filesystem::path& membership,
                                const std::filesystem::path& root);

}  // namespace hocket
