#include "base/nearest_name.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace hocket {
namespace {

constexpr size_t kMaxName = 64;  // longer names are no typing errors

size_t distance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table of distances between prefixes.
  std::array<std::vector<size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates) {
  if (name.size() > kMaxName) return std::nullopt;
  std::optional<std::string_view> best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t d = distance(name, candidate);
    if (d < best_distance) best_distance = d, best = candidate;
  }
  return best;
}

}  // namespace hocket
