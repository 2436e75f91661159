#include "compute/weights/gguf_grids.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/weights/gguf_bytes.h"
#include "compute/weights/gguf_grid_tables.h"

namespace hocket {
namespace {

using Id = GgufTypeId;

constexpr int kEight = 8;

template <class T>
T word_at(const std::byte* at) {
  T word;
  std::memcpy(&word, at, sizeof(T));
  return word;
}

// Eight signs from seven bits: the number of minus signs is even.
int even_signs(uint32_t seven_bits) {
  const uint32_t bits = seven_bits & 127;
  return static_cast<int>(bits | (static_cast<uint32_t>(std::popcount(bits)) & 1) << 7);
}

int8_t with_sign(int number, int signs, int i) {
  return static_cast<int8_t>((signs >> i & 1) != 0 ? -number : number);
}

void put_iq2(uint16_t word, int signs, int8_t* to) {
  const int8_t* const numbers = number_table(WeightFormat::iq2).numbers;
  for (int i = 0; i < kEight; ++i) to[i] = with_sign(numbers[word >> 2 * i & 3], signs, i);
}

// Two words of four numbers.
template <class Number>
void put_iq3(uint16_t first, uint16_t second, int signs, int8_t* to, Number number) {
  for (int i = 0; i < kEight; ++i) {
    const uint16_t word = i < 4 ? first : second;
    to[i] = with_sign(number(word >> 4 * (i % 4) & 7), signs, i);
  }
}

// Eight times the numbers of a word, shifted by one up or down.
void put_iq1(uint16_t word, bool down, int8_t* to) {
  for (int i = 0; i < kEight; ++i)
    to[i] = static_cast<int8_t>(8 * ((word >> 2 * i & 3) - 1) + (down ? -1 : 1));
}

// A group under the scale of its block, with the unit of a format with a table, which has all
// numbers of the type.
GridGroup group_of(WeightFormat format, float block_scale) {
  return {
      .block_scale = block_scale, .unit = number_table(format).unit, .scales = {}, .numbers = {}};
}

// Scales are odd: 2 bits + 1.
int8_t odd(uint32_t bits) {
  return static_cast<int8_t>(2 * bits + 1);
}

uint32_t four_bits(const std::byte* bytes, int i) {
  return static_cast<uint32_t>(byte_at(bytes + i / 2) >> 4 * (i % 2) & 15);
}

GridGroup read_iq2_xxs(const std::byte* from, int group) {
  const std::byte* const words = from + 2 + group * 8;
  const auto rest = word_at<uint32_t>(words + 4);
  GridGroup out = group_of(WeightFormat::iq2, half_at(from));
  out.scales.fill(odd(rest >> 28));
  for (int l = 0; l < 4; ++l)
    put_iq2(kIq2XxsGrid[byte_at(words + l)], even_signs(rest >> 7 * l), &out.numbers[l * kEight]);
  return out;
}

GridGroup read_iq2_xs(const std::byte* from, int group) {
  GridGroup out = group_of(WeightFormat::iq2, half_at(from));
  for (int half = 0; half < 2; ++half) out.scales[half] = odd(four_bits(from + 66 + group, half));
  for (int l = 0; l < 4; ++l) {
    const auto word = word_at<uint16_t>(from + 2 + (group * 4 + l) * 2);
    put_iq2(kIq2XsGrid[word & 511], even_signs(word >> 9), &out.numbers[l * kEight]);
  }
  return out;
}

GridGroup read_iq2_s(const std::byte* from, int group) {
  const int high = byte_at(from + 66 + group);
  GridGroup out = group_of(WeightFormat::iq2, half_at(from));
  for (int half = 0; half < 2; ++half) out.scales[half] = odd(four_bits(from + 74 + group, half));
  for (int l = 0; l < 4; ++l) {
    const int at = group * 4 + l;
    const int place = byte_at(from + 2 + at) | (high >> 2 * l & 3) << 8;
    put_iq2(kIq2SGrid[place], byte_at(from + 34 + at), &out.numbers[l * kEight]);
  }
  return out;
}

GridGroup read_iq3_xxs(const std::byte* from, int group) {
  const std::byte* const places = from + 2 + group * 8;
  const auto rest = word_at<uint32_t>(from + 66 + group * 4);
  GridGroup out = group_of(WeightFormat::iq3_xxs, half_at(from));
  out.scales.fill(odd(rest >> 28));
  for (int l = 0; l < 4; ++l)
    put_iq3(kIq3XxsGrid[byte_at(places + 2 * l)], kIq3XxsGrid[byte_at(places + 2 * l + 1)],
            even_signs(rest >> 7 * l), &out.numbers[l * kEight],
            [](int bits) { return number_table(WeightFormat::iq3_xxs).numbers[bits]; });
  return out;
}

GridGroup read_iq3_s(const std::byte* from, int group) {
  const std::byte* const places = from + 2 + group * 8;
  const int high = byte_at(from + 66 + group);
  const auto word = [&](int i) { return kIq3SGrid[byte_at(places + i) | (high >> i & 1) << 8]; };
  GridGroup out = group_of(WeightFormat::iq3_s, half_at(from));
  out.scales.fill(odd(four_bits(from + 106, group)));
  for (int l = 0; l < 4; ++l)
    put_iq3(word(2 * l), word(2 * l + 1), byte_at(from + 74 + group * 4 + l),
            &out.numbers[l * kEight], [](int bits) { return 2 * bits + 1; });
  return out;
}

GridGroup read_iq1_s(const std::byte* from, int group) {
  const auto high = word_at<uint16_t>(from + 34 + group * 2);
  GridGroup out = group_of(WeightFormat::iq1, half_at(from));
  out.scales.fill(odd(high >> 12 & 7));
  for (int l = 0; l < 4; ++l) {
    const int place = byte_at(from + 2 + group * 4 + l) | (high >> 3 * l & 7) << 8;
    put_iq1(kIq1Grid[place], (high & 0x8000) != 0, &out.numbers[l * kEight]);
  }
  return out;
}

GridGroup read_iq1_m(const std::byte* from, int group) {
  const std::byte* const scales = from + 48;  // four times four scales, and four bits of d
  uint16_t d = 0;
  for (int i = 0; i < 4; ++i)
    d = static_cast<uint16_t>(d | word_at<uint16_t>(scales + 2 * i) >> 12 << 4 * i);
  const auto three_bits = word_at<uint16_t>(scales + group / 2 * 2) >> 6 * (group % 2);
  GridGroup out = group_of(WeightFormat::iq1, f16_to_float(d));
  for (int half = 0; half < 2; ++half) out.scales[half] = odd(three_bits >> 3 * half & 7);
  for (int l = 0; l < 4; ++l) {
    const int high = byte_at(from + 32 + group * 2 + l / 2) >> 4 * (l % 2);
    const int place = byte_at(from + group * 4 + l) | (high & 7) << 8;
    put_iq1(kIq1Grid[place], (high & 8) != 0, &out.numbers[l * kEight]);
  }
  return out;
}

// Number i of a byte that holds five numbers, as a fraction in base 3.
int8_t third_at(int byte, int i) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  return static_cast<int8_t>((((byte * kPowers[i]) & 255) * 3 >> 8) - 1);
}

GridGroup read_tq1_0(const std::byte* from, int group) {
  GridGroup out = group_of(WeightFormat::tq, half_at(from + 52));
  out.scales.fill(1);
  for (int i = 0; i < 32; ++i) {
    const int at = group * 32 + i;  // 5 times 32 numbers in 32 bytes, 5 times 16, 4 times 4
    if (at < 160) {
      out.numbers[i] = third_at(byte_at(from + at % 32), at / 32);
    } else if (at < 240) {
      out.numbers[i] = third_at(byte_at(from + 32 + (at - 160) % 16), (at - 160) / 16);
    } else {
      out.numbers[i] = third_at(byte_at(from + 48 + (at - 240) % 4), (at - 240) / 4);
    }
  }
  return out;
}

GridGroup read_tq2_0(const std::byte* from, int group) {
  GridGroup out = group_of(WeightFormat::tq, half_at(from + 64));
  out.scales.fill(1);
  for (int i = 0; i < 32; ++i)
    out.numbers[i] =
        static_cast<int8_t>((byte_at(from + group / 4 * 32 + i) >> 2 * (group % 4) & 3) - 1);
  return out;
}

}  // namespace

GridGroup read_grid_group(GgufTypeId type, const std::byte* block, int group) {
  switch (type) {
    case Id::iq1_s:
      return read_iq1_s(block, group);
    case Id::iq1_m:
      return read_iq1_m(block, group);
    case Id::iq2_xxs:
      return read_iq2_xxs(block, group);
    case Id::iq2_xs:
      return read_iq2_xs(block, group);
    case Id::iq2_s:
      return read_iq2_s(block, group);
    case Id::iq3_xxs:
      return read_iq3_xxs(block, group);
    case Id::iq3_s:
      return read_iq3_s(block, group);
    case Id::tq1_0:
      return read_tq1_0(block, group);
    default:
      HOCKET_CHECK(type == Id::tq2_0);
      return read_tq2_0(block, group);
  }
}

}  // namespace hocket
