#include "engine/plan/folder_limit.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <system_error>

#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Returns the folder, or the first one around it that is there.
fs::path nearest_folder(fs::path folder) {
  std::error_code gone;
  while (!fs::exists(folder, gone) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code problem;
  fs::recursive_directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::recursive_directory_iterator(); entries.increment(problem)) {
    std::error_code gone;
    const auto size = entries->is_regular_file(gone) ? entries->file_size(gone) : 0;
    bytes += gone ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

bool is_in_memory(const fs::path& folder) {
  struct statfs info{};
  if (statfs(nearest_folder(folder).c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

Result<int64_t> folder_limit(double given_gb, const fs::path& folder, int64_t held_bytes) {
  if (given_gb > 0) return static_cast<int64_t>(given_gb * 1e9);
  std::error_code problem;
  const fs::space_info space = fs::space(nearest_folder(folder), problem);
  if (problem)
    return fail(error(ErrorCode::bad_value, "the free disk at {} is not known: {}", folder.string(),
                      problem.message())
                    .with_param("kv-cache-dir-gb")
                    .with_fix("--kv-cache-dir-gb 100"));
  const double room = static_cast<double>(held_bytes) + static_cast<double>(space.available);
  const auto planned = static_cast<int64_t>(kShareOfFreeDisk * room);
  return is_in_memory(folder) ? std::min(planned, kMaxMemoryBytes) : planned;
}

// Ranks in processes of their own have a limit each, as the contract says of processes.
int64_t folder_memory_of_rank(const ServerSettings& settings) {
  const fs::path folder = settings.memory.kv_cache_dir;
  if (folder.empty() || !is_in_memory(folder)) return 0;
  const int64_t held = bytes_below(folder);
  const int64_t limit = folder_limit(settings.memory.kv_cache_dir_gb, folder, held).value_or(0);
  return std::max<int64_t>(limit - held, 0) / num_sharing_ranks(settings.parallel);
}

}  // namespace hocket
