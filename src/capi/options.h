// Settings of an engine by the names of the program's flags ("context-length"), given as text.
#pragma once

#include <string_view>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// Errors: bad_value, with the nearest name where there is no such option. A failed call changes
// nothing.
Result<void> set_option(ServerSettings& settings, std::string_view name, std::string_view value);
// By index, from 0 on; null after the last. Ends with 0.
const char* option_name(size_t index);

}  // namespace hocket
