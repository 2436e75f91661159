#pragma once

#include <filesystem>

namespace hocket {

/// The root of the source tree that this program was built from; tests read their files there. Any
/// thread.
std::filesystem::path source_dir();

}  // namespace hocket
