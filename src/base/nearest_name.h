// Finds the candidate for "did you mean": the closest to a mistyped name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace hocket {

// Returns the candidate with the fewest insertions, deletions, replacements and swaps of
// neighbours; the first of equals. Returns nullopt if even the best needs more than a third of the
// name's letters (at least two).
std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates);

}  // namespace hocket
