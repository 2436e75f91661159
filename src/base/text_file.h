// Reads text files up to a limit. A folder, a device or a file that is too large is an error: it
// neither throws nor uses up the memory.   Thread: any.
#pragma once

#include <istream>
#include <string>

#include "base/result.h"

namespace hocket {

// Returns the whole file. Errors: io; bad_value if it is longer than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, size_t max_bytes);

// Reads the next line without its end; returns false if there is none. Errors: io; bad_value if it
// is longer than `max_bytes`.
Result<bool> next_line(std::istream& from, std::string& line, size_t max_bytes);

}  // namespace hocket
