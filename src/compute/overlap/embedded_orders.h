// The files orders/*.yaml, as text; CMake makes the body. By name.   Thread: any.
#pragma once

#include <span>
#include <string_view>

namespace hocket {

std::span<const std::string_view> embedded_orders();

}  // namespace hocket
