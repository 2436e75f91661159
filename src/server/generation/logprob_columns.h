// Log-probabilities of an answer's positions as JSON text, in the columns of an API's format. Each
// position is written once, even if many blocks repeat it.   Thread: one at a time.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace hocket {

struct LogprobColumns {
  std::array<std::string, 4> lists;  // entries of each column, joined by commas
  size_t num = 0;                    // positions added
  size_t num_chars = 0;              // characters of their tokens and of those before: text_offset

  void add(size_t column, std::string_view json) {
    if (!lists[column].empty()) lists[column] += ',';
    lists[column] += json;
  }
  // Frees the text after it has been sent; the numbers stay.
  void clear() {
    for (std::string& list : lists) std::string().swap(list);
  }
  size_t bytes() const {
    size_t sum = 0;
    for (const std::string& list : lists) sum += list.size();
    return sum;
  }
};

// Returns column `column` as "[a,b,...]"; for two objects, the second follows the first.
inline std::string column_text(const LogprobColumns& columns, size_t column) {
  return "[" + columns.lists[column] + "]";
}
inline std::string column_text(const LogprobColumns& first, const LogprobColumns& then,
                               size_t column) {
  const bool both = !first.lists[column].empty() && !then.lists[column].empty();
  return "[" + first.lists[column] + (both ? "," : "") + then.lists[column] + "]";
}

}  // namespace hocket
