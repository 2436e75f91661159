// Limits the bytes of the files of the prefix cache (--kv-cache-dir). A folder in memory, such as
// one below /dev/shm, takes them from the memory of weights and pages.   Thread: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// Planned limits: a share of the free disk, and in memory not more than kMaxMemoryBytes.
inline constexpr double kShareOfFreeDisk = 0.5;
inline constexpr int64_t kMaxMemoryBytes = 8'000'000'000;

// Returns true if the files of the folder are kept in memory. A folder that is not made yet will be
// where the one around it is.
bool is_in_memory(const std::filesystem::path& folder);
// Returns the limit of all files, which take held_bytes now. given_gb: --kv-cache-dir-gb; 0: it is
// planned, as a share of what is free or theirs, so that a restart plans the same. Errors:
// bad_value, if it is to be planned and nothing is known of the disk.
Result<int64_t> folder_limit(double given_gb, const std::filesystem::path& folder,
                             int64_t held_bytes);
// Returns the most bytes that files in --kv-cache-dir may ever take, of which the size of the disk
// decides without --kv-cache-dir-gb; kUnknownDisk if it does not answer within kMaxLook, or is not
// known.
inline constexpr Duration kMaxLook = std::chrono::seconds(2);
inline constexpr int64_t kUnknownDisk = std::numeric_limits<int64_t>::max();
int64_t max_stored_bytes(const MemorySettings& settings);
// Returns the memory that the files may take beside what they have now; 0 if they are on a disk.
// given_gb: as above.
int64_t room_in_memory(double given_gb, const std::filesystem::path& folder);
// Returns room_in_memory() as bytes of each of the ranks that share the folder; 0 if there is none,
// or it has not answered within kMaxLook, as a mount may do. `look` owns all that it uses.
using FolderLook = std::function<int64_t(double given_gb, const std::filesystem::path& folder)>;
int64_t folder_memory_of_rank(const ServerSettings& settings, FolderLook look = room_in_memory);
// Returns what folder_memory_of_rank() leaves of a rank's memory. Whatever is planned with that of
// a machine takes this, once.
int64_t memory_beside_folder(int64_t available_bytes, const ServerSettings& settings);

}  // namespace hocket
