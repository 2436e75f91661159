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

// Adds the counts of another rank.
template <class Counts, size_t num_rows>
void add_counters(const std::array<NamedCounter<Counts>, num_rows>& table, const Counts& more,
                  Counts& sum) {
  static_assert(sizeof(Counts) == num_rows * sizeof(uint64_t), "each member needs one row");
  for (const NamedCounter<Counts>& row : table) sum.*row.value += more.*row.value;
}

}  // namespace hocket
