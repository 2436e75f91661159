// A flat YAML map of settings as text values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hocket {

// Errors: io (cannot read), bad_value (not a flat map, with the line).
Result<std::vector<std::pair<std::string, std::string>>> read_yaml_values(const std::string& path);

}  // namespace hocket
