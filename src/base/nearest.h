// "did you mean": the candidate that a mistyped name is closest to.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace hocket {

// Fewest insertions, deletions, replacements and swaps of neighbours; nothing when even the best
// needs more than a third of the name's letters (at least two). The first of equals.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates);

}  // namespace hocket
