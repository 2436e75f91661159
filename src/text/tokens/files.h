// Reads a whole small file.   Thread: any.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace hocket {

// Errors: `code`, with the file's name, if it cannot be read or is larger than 256 MiB.
Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code);

}  // namespace hocket
