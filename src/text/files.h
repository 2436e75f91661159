// Reads a whole small file.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace hocket {

// Errors: `code`, naming the file.
Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code);

}  // namespace hocket
