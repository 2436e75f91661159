// Says whether another user could change a file or a folder whose content is believed. Root and the
// user of this process may: they can do anything in any case. So may the user's own group, if its
// number is the user's.   Thread: any.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace hocket {

// if_sticky: others may make entries of a folder where they can neither delete nor rename those of
// this user (`chmod +t`), as in /tmp.
enum class OthersWrite : uint8_t { never, if_sticky };

// `info` is that of `path`, which errors name. Errors: io, with the command that repairs it.
Result<void> check_owner(const std::filesystem::path& path, const struct stat& info,
                         OthersWrite others = OthersWrite::never);
// Looks at the folder, and at the link that leads there if `path` is one. One that is absent or
// cannot be looked at passes. Errors: io.
Result<void> check_folder_owner(const std::filesystem::path& path,
                                OthersWrite others = OthersWrite::never);

}  // namespace hocket
