// Tables of four-bit numbers as files hold them: eight in a little-endian int32, which are eight
// neighbouring rows or columns. Private to the room.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kNibbles = 8;  // numbers per word
constexpr int64_t nibble_words(int64_t count) {
  return round_up(count, kNibbles) / kNibbles;
}

struct Nibbles {
  enum class Along : uint8_t { rows, columns };
  // sequential: the first number is in the lowest bits. awq: the lowest bits hold number 0, then 2
  // 4 6 1 3 5 7.
  enum class Order : uint8_t { sequential, awq };
  const std::byte* words = nullptr;  // may be unaligned
  Along along = Along::columns;
  Order order = Order::sequential;
  int64_t row_stride = 0, column_stride = 0;  // distances between words, in words

  int at(int64_t row, int64_t column) const;
  // Reads rows from row_begin on, one number per byte. Order awq: only along rows.
  void read(int64_t row_begin, View<uint8_t> out) const;

 private:
  uint32_t word(int64_t word_row, int64_t word_column) const;
  int shift(int64_t i) const;  // bit position of number i of a word
  void read_along_rows(int64_t row_begin, View<uint8_t> out) const;
  void read_along_columns(int64_t row_begin, View<uint8_t> out) const;
  void read_side_by_side(int64_t row_begin, View<uint8_t> out) const;
};

}  // namespace hocket
