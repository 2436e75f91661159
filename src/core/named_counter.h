// A counter of a struct of counters, and its row at /metrics and in answers. The table of rows
// stands beside the struct: by it the counts of ranks are added and shown, so a new counter is a
// member and its row. Members are of uint64_t (events, bytes) or double (seconds).
//
//   struct FruitCounts { uint64_t num_apples = 0; };
//   inline constexpr auto kFruitCounters = std::to_array<NamedCounter<FruitCounts>>(
//       {{&FruitCounts::num_apples, "apples_total", "Apples that were picked"}});
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace hocket {

template <class Counts>
struct NamedCounter {
  std::variant<uint64_t Counts::*, double Counts::*> value;
  const char *name, *help;  // the metric's name without its prefix; null: it is no metric
  const char *label = nullptr, *label_value = nullptr;
  const char* key = nullptr;  // its name in answers; null: they lack it
  // Its names before, which metrics and answers have too until the next version; null: none.
  const char *old_name = nullptr, *old_key = nullptr;
  // True if the ranks of a process count together, so that each has the count of all.
  bool is_shared = false;
};

// True if the table has one row for each member of Counts. To be asserted beside the table.
template <class Counts, size_t num_rows>
consteval bool names_each_member(const std::array<NamedCounter<Counts>, num_rows>& table) {
  for (size_t i = 0; i < num_rows; ++i)
    for (size_t k = 0; k < i; ++k)
      if (table[i].value == table[k].value) return false;
  static_assert(sizeof(uint64_t) == sizeof(double));
  return sizeof(Counts) == num_rows * sizeof(uint64_t);
}

// Adds the counts of another rank of this process.
template <class Counts, size_t num_rows>
void add_counters(const std::array<NamedCounter<Counts>, num_rows>& table, const Counts& more,
                  Counts& sum) {
  for (const NamedCounter<Counts>& row : table)
    std::visit([&](auto member) { sum.*member = more.*member + (row.is_shared ? 0 : sum.*member); },
               row.value);
}

// Counts to which several threads add.   Thread: any.
template <class Counts>
class AtomicCounts {
 public:
  void add(uint64_t Counts::* member, uint64_t more = 1) {
    std::atomic_ref(counts_.*member).fetch_add(more, std::memory_order_relaxed);
  }
  void add(double Counts::* member, double more) {
    std::atomic_ref(counts_.*member).fetch_add(more, std::memory_order_relaxed);
  }
  uint64_t get(uint64_t Counts::* member) const {
    return std::atomic_ref(counts_.*member).load(std::memory_order_relaxed);
  }
  // Returns a copy of all counts of the table.
  template <size_t num_rows>
  Counts read(const std::array<NamedCounter<Counts>, num_rows>& table) const {
    Counts copy;
    for (const NamedCounter<Counts>& row : table)
      std::visit(
          [&](auto member) {
            copy.*member = std::atomic_ref(counts_.*member).load(std::memory_order_relaxed);
          },
          row.value);
    return copy;
  }

 private:
  mutable Counts counts_;  // std::atomic_ref refers to no const object
};

}  // namespace hocket
