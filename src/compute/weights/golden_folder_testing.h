// The folder of models and recordings that other programs made, which tests read.
#pragma once

#include <filesystem>

namespace hocket {

inline const std::filesystem::path kGolden =
    std::filesystem::path(HOCKET_SOURCE_DIR) / "tests/golden";

}  // namespace hocket
