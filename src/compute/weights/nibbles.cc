#include "compute/weights/nibbles.h"

#include <algorithm>
#include <cstring>

namespace hocket {
namespace {

constexpr int kAwqShift[kNibbles] = {0, 16, 4, 20, 8, 24, 12, 28};

// Returns the eight numbers of a word as bytes, lowest first.
uint64_t spread(uint32_t word) {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

void write(const void* eight, int64_t count, uint8_t* to) {
  if (count >= kNibbles) {
    std::memcpy(to, eight, kNibbles);  // constant size: one store
  } else {
    std::memcpy(to, eight, count);
  }
}

}  // namespace

uint32_t Nibbles::word(int64_t word_row, int64_t word_column) const {
  uint32_t bits;
  std::memcpy(&bits, words + (word_row * row_stride + word_column * column_stride) * 4, 4);
  return bits;
}

int Nibbles::shift(int64_t i) const {
  return order == Order::awq ? kAwqShift[i] : static_cast<int>(4 * i);
}

int Nibbles::at(int64_t row, int64_t column) const {
  const uint32_t bits =
      along == Along::rows ? word(row / kNibbles, column) : word(row, column / kNibbles);
  return bits >> shift((along == Along::rows ? row : column) % kNibbles) & 15;
}

void Nibbles::read(int64_t row_begin, View<uint8_t> out) const {
  if (along == Along::rows) return read_along_rows(row_begin, out);
  HOCKET_CHECK(order == Order::sequential);
  read_along_columns(row_begin, out);
}

// read_along_rows and read_along_columns take eight columns at a time, down the rows. If rows are
// adjacent in the file, each cache line is then fetched once.

void Nibbles::read_along_rows(int64_t row_begin, View<uint8_t> out) const {
  for (int64_t column = 0; column < out.cols; column += kNibbles) {
    const int64_t count = std::min<int64_t>(kNibbles, out.cols - column);
    for (int64_t row = 0; row < out.rows;) {
      const int64_t first = (row_begin + row) % kNibbles;
      const int64_t end = std::min(out.rows, row + kNibbles - first);
      uint32_t bits[kNibbles] = {};
      for (int64_t c = 0; c < count; ++c) bits[c] = word((row_begin + row) / kNibbles, column + c);
      for (int64_t i = first; row < end; ++row, ++i) {
        uint8_t eight[kNibbles];
        for (int c = 0; c < kNibbles; ++c) eight[c] = bits[c] >> shift(i) & 15;
        write(eight, count, out.row(row) + column);
      }
    }
  }
}

void Nibbles::read_along_columns(int64_t row_begin, View<uint8_t> out) const {
  if (column_stride == 1) return read_side_by_side(row_begin, out);
  for (int64_t column = 0; column < out.cols; column += kNibbles)
    for (int64_t row = 0; row < out.rows; ++row) {
      const uint64_t eight = spread(word(row_begin + row, column / kNibbles));
      write(&eight, out.cols - column, out.row(row) + column);
    }
}

// Reads files in which the words of a row are adjacent.
void Nibbles::read_side_by_side(int64_t row_begin, View<uint8_t> out) const {
  for (int64_t row = 0; row < out.rows; ++row) {
    const std::byte* from = words + (row_begin + row) * row_stride * 4;
    uint8_t* const to = out.row(row);
    for (int64_t column = 0; column < out.cols; column += kNibbles, from += 4) {
      uint32_t bits;
      std::memcpy(&bits, from, 4);
      const uint64_t eight = spread(bits);
      write(&eight, out.cols - column, to + column);
    }
  }
}

}  // namespace hocket
