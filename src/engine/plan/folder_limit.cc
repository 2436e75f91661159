#include "engine/plan/folder_limit.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/timed_calls.h"
#include "compute/kv/page_folders.h"
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

// Returns the bytes in the folders of forms. The limit counts none of the other files that may lie
// beside them.
int64_t bytes_of_forms(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code problem;
  fs::directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    if (is_form_name(entries->path().filename().string())) bytes += bytes_below(entries->path());
  }
  return bytes;
}

// Returns the limit of files that may take `room_bytes` in all.
int64_t planned_limit(const fs::path& folder, uintmax_t room_bytes) {
  const auto share = static_cast<int64_t>(kShareOfFreeDisk * static_cast<double>(room_bytes));
  return is_in_memory(folder) ? std::min(share, kMaxMemoryBytes) : share;
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
  return planned_limit(folder, static_cast<uintmax_t>(held_bytes) + space.available);
}

int64_t max_stored_bytes(const MemorySettings& settings) {
  if (settings.kv_cache_dir.empty()) return 0;
  if (settings.kv_cache_dir_gb > 0) return static_cast<int64_t>(settings.kv_cache_dir_gb * 1e9);
  TimedCalls calls({.name = "kv_disk",
                    .target = settings.kv_cache_dir,
                    .num_threads = 1,
                    .limit = kMaxLook,
                    .fix = "--kv-cache-dir-gb 100"});
  const Result<int64_t> planned =
      calls.run<int64_t>([folder = fs::path(settings.kv_cache_dir)]() -> Result<int64_t> {
        std::error_code problem;
        const fs::space_info space = fs::space(nearest_folder(folder), problem);
        return problem ? 0 : planned_limit(folder, space.capacity);
      });
  return planned && *planned > 0 ? *planned : kUnknownDisk;
}

int64_t room_in_memory(double given_gb, const fs::path& folder) {
  if (!is_in_memory(folder)) return 0;
  const int64_t held = bytes_of_forms(folder);
  return std::max<int64_t>(folder_limit(given_gb, folder, held).value_or(0) - held, 0);
}

// Ranks in processes of their own have a limit each, as the contract says of processes. A folder
// that does not answer is not in memory.
int64_t folder_memory_of_rank(const ServerSettings& settings, FolderLook look) {
  if (settings.memory.kv_cache_dir.empty()) return 0;
  TimedCalls calls({.name = "kv_memory",
                    .target = settings.memory.kv_cache_dir,
                    .num_threads = 1,
                    .limit = kMaxLook,
                    .fix = "look whether its disk or mount still answers, or name another folder"});
  const Result<int64_t> room =
      calls.run<int64_t>([look = std::move(look), given_gb = settings.memory.kv_cache_dir_gb,
                          folder = fs::path(settings.memory.kv_cache_dir)] {
        return Result<int64_t>(look(given_gb, folder));
      });
  return room.value_or(0) / num_sharing_ranks(settings.parallel);
}

int64_t memory_beside_folder(int64_t available_bytes, const ServerSettings& settings) {
  return std::max<int64_t>(available_bytes - folder_memory_of_rank(settings), 0);
}

}  // namespace hocket
