// The folder of models and recordings that other programs made, which tests read.
#pragma once

#include <filesystem>

#include "base/source_dir_testing.h"

namespace hocket {

inline const std::filesystem::path kGolden = source_dir() / "tests/golden";

}  // namespace hocket
