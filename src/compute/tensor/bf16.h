// bfloat16 and float16 as stored numbers; arithmetic is in fp32 (docs/contracts/arithmetic.md).
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace hocket {

struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(Bf16, Bf16) = default;
};

inline float to_float(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
inline float to_float(float x) {
  return x;
}

// Rounds to the nearest bf16, ties to even; a NaN stays a NaN.
inline Bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// Conversions of IEEE binary16 bits: to fp32 exactly; from fp32 to the nearest value, ties to even.
// A NaN stays a NaN.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float x);

template <class T>
T from_float(float x);
template <>
inline Bf16 from_float<Bf16>(float x) {
  return to_bf16(x);
}
template <>
inline float from_float<float>(float x) {
  return x;
}

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<Bf16> = DType::bf16;

}  // namespace hocket
