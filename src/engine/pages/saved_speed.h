// The speed of prompts as it was measured before a restart, in a small file beside their pages: so
// the first prompt knows whether its pages are read faster than computed.   Thread: any.
#pragma once

#include <filesystem>

namespace hocket {

// Returns the seconds that a row of a prompt takes; 0 if there is no such file, or it holds
// anything else.
double load_row_seconds(const std::filesystem::path& folder);
// Returns false if it could not be written.
bool save_row_seconds(const std::filesystem::path& folder, double seconds);

}  // namespace hocket
