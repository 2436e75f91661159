// The list of all APIs.
#pragma once

#include <span>
#include <string_view>

#include "server/generation/api.h"

namespace hocket {

std::span<const Api* const> all_apis();
// Returns the format in which errors of `path` are written: that of the API whose path it begins
// with, or that of OpenAI.
const ErrorFormat& error_format_of(std::string_view path);

}  // namespace hocket
