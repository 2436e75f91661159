// A counter of a struct of counters, and its row at /metrics. The table of rows stands beside the
// struct: by it the counts of ranks are added and shown, so a new counter is a member and its row.
//
//   struct FruitCounts { uint64_t num_apples = 0; };
//   inline constexpr auto kFruitCounters = std::to_array<NamedCounter<FruitCounts>>(
//       {{&FruitCounts::num_apples, "apples_total", "Apples that were picked"}});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hocket {

template <class Counts>
struct NamedCounter {
  uint64_t Counts::* value;
  const char *name, *help;  // the name without its prefix
  const char *label = nullptr, *label_value = nullptr;
};

// True if the table has one row for each member of Counts. To be asserted beside the table.
template <class Counts, size_t num_rows>
consteval bool names_each_member(const std::array<NamedCounter<Counts>, num_rows>& table) {
  for (size_t i = 0; i < num_rows; ++i)
    for (size_t k = 0; k < i; ++k)
      if (table[i].value == table[k].value) return false;
  return sizeof(Counts) == num_rows * sizeof(uint64_t);
}

// Adds the counts of another rank.
template <class Counts, size_t num_rows>
void add_counters(const std::array<NamedCounter<Counts>, num_rows>& table, const Counts& more,
                  Counts& sum) {
  for (const NamedCounter<Counts>& row : table) sum.*row.value += more.*row.value;
}

}  // namespace hocket
