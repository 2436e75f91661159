// Files that are whole or absent: they are written under a name of their own, which no other
// process has, and renamed when all is there.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>

namespace hocket {

// Begins the names of files that are not whole yet. One that stays was abandoned by its writer.
inline constexpr std::string_view kUnfinishedFile = "unfinished-";

// Returns true if `path` is such a file, and has not been written for an hour.
bool is_abandoned_file(const std::filesystem::path& path);

// Says whether the bytes are on the disk before they take the place of the old file, for which the
// caller waits as long as the disk takes. Without that, a loss of power soon afterwards may leave
// an empty file where the old one was.
enum class FileFlush : uint8_t { none, before_rename };

// Puts the parts, one behind the other, in place of what `path` names; its owner alone may read it.
// Returns 0, or the error's number; then the old file is as it was, and nothing else is left.
int write_whole_file(const std::filesystem::path& path,
                     std::initializer_list<std::span<const std::byte>> parts,
                     FileFlush flush = FileFlush::none);

}  // namespace hocket
