// The version of this build; project() in CMakeLists.txt has the same.
#pragma once

#include <string_view>

namespace hocket {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace hocket
