// Files that admins ask for (profiles, dumps) are written below one folder, which the operator
// names at the start (--admin-folder), and nowhere else.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

inline constexpr size_t kPlainNameMax = 64;  // bytes

// Letters, digits, '-', '_' and '.', the first no '.': such a name cannot lead out of its folder.
bool is_plain_name(std::string_view name);

// The folder `name` below `root`, which is made if it is missing; `root` itself if `name` is empty.
// root: --admin-folder. field: the request's field that holds the name, for errors.
// Errors: invalid_request where root is empty, the name is not plain, or a file or a link already
// has that name; io.
Result<std::string> admin_folder(const std::string& root, std::string_view name,
                                 std::string_view field);

}  // namespace hocket
