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

// The folder `name` of `root`, made if it is not there; `root` itself where no name is given.
// `field`: of the request, for errors. Errors: invalid_request: there is no root, the name is not
// plain, or what is there is no folder but a link to one; io.
Result<std::string> admin_folder(const std::string& root, std::string_view name,
                                 std::string_view field);

}  // namespace hocket
