// The texts of the files orders/*.yaml, sorted by file name. CMake generates the body. Thread: any.
#pragma once

#include <span>
#include <string_view>

namespace hocket {

std::span<const std::string_view> embedded_orders();

}  // namespace hocket
