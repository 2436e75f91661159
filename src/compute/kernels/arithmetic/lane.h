// A single fp32 lane for the functions of math.h.
#pragma once

#include <bit>
#include <cstdint>

#include "compute/kernels/arithmetic/math.h"

namespace hocket::ref {

struct Lane {
  float x;
  static Lane all(float v) { return {v}; }
  static Lane all_bits(uint32_t u) { return {std::bit_cast<float>(u)}; }
  uint32_t bits() const { return std::bit_cast<uint32_t>(x); }

  friend Lane operator+(Lane a, Lane b) { return {a.x + b.x}; }
  friend Lane operator-(Lane a, Lane b) { return {a.x - b.x}; }
  friend Lane operator*(Lane a, Lane b) { return {a.x * b.x}; }
  friend Lane operator/(Lane a, Lane b) { return {a.x / b.x}; }
  friend bool operator<(Lane a, Lane b) { return a.x < b.x; }
  friend bool operator==(Lane a, Lane b) { return a.x == b.x; }
  friend Lane fma(Lane a, Lane b, Lane c) { return {__builtin_fmaf(a.x, b.x, c.x)}; }
  friend Lane select(bool mask, Lane a, Lane b) { return mask ? a : b; }
  friend Lane add_bits(Lane a, Lane b) { return all_bits(a.bits() + b.bits()); }
  friend Lane and_bits(Lane a, Lane b) { return all_bits(a.bits() & b.bits()); }
  friend Lane or_bits(Lane a, Lane b) { return all_bits(a.bits() | b.bits()); }
  friend Lane xor_bits(Lane a, Lane b) { return all_bits(a.bits() ^ b.bits()); }
  template <int n>
  friend Lane shift_left(Lane a) {
    return all_bits(a.bits() << n);
  }
  template <int n>
  friend Lane shift_right(Lane a) {
    return all_bits(a.bits() >> n);
  }
  friend Lane from_int(Lane a) { return {static_cast<float>(static_cast<int32_t>(a.bits()))}; }
};

inline float exp(float x) {
  return math::exp(Lane{x}).x;
}
inline float log(float x) {
  return math::log(Lane{x}).x;
}
inline float sigmoid(float x) {
  return math::sigmoid(Lane{x}).x;
}
inline float softplus(float x) {
  return math::softplus(Lane{x}).x;
}
inline float soft_cap(float x, float cap) {
  return math::soft_cap(Lane{x}, Lane{cap}).x;
}
inline float silu(float x) {
  return math::silu(Lane{x}).x;
}

}  // namespace hocket::ref
