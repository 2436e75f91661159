// Converts values as Python writes them to JSON: 'text', None, True, (1, 2), {'a': [1]}. JSON's own
// words are read, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hocket {

// Returns nullopt if `text` is no literal, nests deeper than 64 levels, or has no form in JSON (a
// set, bytes, a key that is no string, a complex number).
std::optional<std::string> python_to_json(std::string_view text);

}  // namespace hocket
