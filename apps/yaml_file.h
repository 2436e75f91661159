// Reads a flat YAML map of settings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hocket {

// Returns the keys and values of the file as text, in its order. Errors: io (cannot read),
// bad_value (not a flat map, with the line).
Result<std::vector<std::pair<std::string, std::string>>> read_yaml_values(const std::string& path);

}  // namespace hocket
