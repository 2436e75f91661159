// A loop over rows whose body is compiled for each count of rows that stays in registers.
#pragma once

#include <type_traits>

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

template <int R, class Body>
inline void with_rows(int rows, Body&& body) {
  if constexpr (R > 1)
    if (rows < R) return with_rows<R - 1>(rows, body);
  body(std::integral_constant<int, R>());
}

// Calls body(count, row) for blocks of at most kMax rows; count is an integral constant.
template <int kMax, class Body>
inline void for_each_rows(int rows, Body&& body) {
  for (int row = 0; row < rows; row += kMax)
    with_rows<kMax>(rows - row, [&](auto count) { body(count, row); });
}

// Calls body(count, row) for as few blocks of at most kMax rows as possible, whose sizes differ by
// at most one.
template <int kMax, class Body>
inline void for_each_equal_block(int rows, Body&& body) {
  const int blocks = (rows + kMax - 1) / kMax;
  for (int block = 0, row = 0; block < blocks; ++block) {
    const int count = rows / blocks + (block < rows % blocks ? 1 : 0);
    with_rows<kMax>(count, [&](auto constant) { body(constant, row); });
    row += count;
  }
}

}  // namespace
}  // namespace hocket::cpu
