// What this build calls itself; the same as project() in CMakeLists.txt says.
#pragma once

#include <string_view>

namespace hocket {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace hocket
