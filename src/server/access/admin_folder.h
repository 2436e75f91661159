// Files that admins ask for (profiles, dumps) are written only below one folder, which the operator
// names at the start (--admin-folder).   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

inline constexpr size_t kMaxPlainName = 64;  // bytes

// True if the name has only letters, digits, '-', '_' and '.', and does not begin with '.': such a
// name cannot lead out of its folder.
bool is_plain_name(std::string_view name);

// Returns the path of the folder `name` below `root`, or of `root` itself if `name` is empty; makes
// it if it is missing. root: the value of --admin-folder. field: the request's field that holds the
// name, for errors. Errors: invalid_request if root is empty, the name is not plain, or a file or a
// link already has that name; io.
Result<std::string> admin_folder(const std::string& root, std::string_view name,
                                 std::string_view field);

}  // namespace hocket
