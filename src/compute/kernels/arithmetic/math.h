// exp, log, sigmoid, silu, softplus, tanh, sine and cosine: one polynomial each, for any number of
// lanes, so that scalar and vector bodies agree in every bit. Every rounding is explicit: an fma is
// used where it is written and nowhere else.
//
// Accuracy (math_test.cc): exp, log, silu, sin, cos within 2 ulp, sigmoid 2.1, softplus 4, tanh 3;
// sin and cos where |x| <= 3e5. Results below 2^-126 are +0, also without FTZ; NaN gives NaN.
// Source: docs/contracts/arithmetic.md; polynomials fitted at Chebyshev nodes.
//
// V is a struct of fp32 lanes, local to the unit that uses it: its functions must not be shared
// between units compiled for different instruction sets. It has  V::all(float),
// V::all_bits(uint32_t);  + - * / < ==;  fma, select(mask, a, b); on the bits: add_bits, and_bits,
// or_bits, xor_bits, shift_left<n>, shift_right<n>;  from_int (bits as int32 to float).
#pragma once

#include <cstdint>

namespace hocket::math {

// Adding this constant rounds a number to an integer, which then is in the low bits of the sum.
inline constexpr float kRoundToInt = 0x1.8p23f;
inline constexpr float kInfinity = __builtin_inff();

// Returns exp(x) for x <= 88.7 or NaN.
template <class V>
[[gnu::always_inline]] inline V exp_not_large(V x) {
  const V t = fma(x, V::all(0x1.715476p+0f), V::all(kRoundToInt));  // n = round(x / ln 2)
  const V n = t - V::all(kRoundToInt);
  V r = fma(n, V::all(-0x1.62e43p-1f), x);
  r = fma(n, V::all(0x1.05c61p-29f), r);
  V q = V::all(0x1.a12652p-13f);
  q = fma(q, r, V::all(0x1.6d44b2p-10f));
  q = fma(q, r, V::all(0x1.1110ep-7f));
  q = fma(q, r, V::all(0x1.5554e8p-5f));
  q = fma(q, r, V::all(0x1.555556p-3f));
  q = fma(q, r, V::all(0.5f));
  const V mantissa = fma(r * r, q, r) + V::all(1);
  V y = add_bits(mantissa, shift_left<23>(t));
  return select(x < V::all(-87.33654f), V::all(0), y);
}
template <class V>
[[gnu::always_inline]] inline V exp(V x) {
  return select(V::all(88.72283f) < x, V::all(kInfinity), exp_not_large(x));
}

// Returns log(x) for x >= 0; log(0) = -inf.
template <class V>
[[gnu::always_inline]] inline V log(V x) {
  // x = 2^k * (1 + f), 1 + f in [sqrt(1/2), sqrt(2));  s = f / (2 + f);
  // log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2)))
  const V shifted = add_bits(x, V::all_bits(0x3f800000u - 0x3f3504f3u));
  const V k = from_int(add_bits(shift_right<23>(shifted), V::all_bits(0u - 127u)));
  const V m = add_bits(and_bits(shifted, V::all_bits(0x007fffffu)), V::all_bits(0x3f3504f3u));
  const V f = m - V::all(1);
  const V s = f / (V::all(2) + f);
  const V z = s * s;
  V r = V::all(0x1.ddd0bep-3f);
  r = fma(r, z, V::all(0x1.245c3ap-2f));
  r = fma(r, z, V::all(0x1.9999ecp-2f));
  r = fma(r, z, V::all(0x1.555556p-1f)) * z;
  const V half_square = V::all(0.5f) * f * f;
  const V low = fma(s, half_square + r, k * V::all(-0x1.05c61p-29f));
  V y = fma(k, V::all(0x1.62e43p-1f), f - (half_square - low));
  y = select(x == V::all(0), V::all(-kInfinity), y);
  y = select(x == V::all(kInfinity), x, y);
  return select(x == x, y, x);
}

template <class V>
[[gnu::always_inline]] inline V sigmoid(V x) {
  return V::all(1) / (V::all(1) + exp(V::all(0) - x));
}

template <class V>
[[gnu::always_inline]] inline V silu(V x) {
  return x / (V::all(1) + exp(V::all(0) - x));
}

// Returns log(1 + exp(x)); x itself above 20, where the two are equal.
template <class V>
[[gnu::always_inline]] inline V softplus(V x) {
  // log(u) * (e / (u - 1)) corrects what 1 + e lost of a small e.
  const V e = exp(select(V::all(20) < x, V::all(0), x));
  const V u = V::all(1) + e;
  const V y = select(u == V::all(1), e, log(u) * (e / (u - V::all(1))));
  return select(V::all(20) < x, x, y);
}

template <class V>
[[gnu::always_inline]] inline V tanh(V x) {
  const V sign = and_bits(x, V::all_bits(0x80000000u));
  const V size = xor_bits(x, sign);
  const V z = x * x;
  V small = V::all(-0x1.8f8de4p-8f);
  small = fma(small, z, V::all(0x1.58048ep-6f));
  small = fma(small, z, V::all(-0x1.b9258ap-5f));
  small = fma(small, z, V::all(0x1.110e1cp-3f));
  small = fma(small, z, V::all(-0x1.555552p-2f));
  small = fma(small * z, size, size);
  const V large = V::all(1) - V::all(2) / (exp(size + size) + V::all(1));
  return or_bits(select(size < V::all(0.625f), small, large), sign);
}

// Returns cap * tanh(x / cap), which is near x where |x| is far below cap, and never above cap.
template <class V>
[[gnu::always_inline]] inline V soft_cap(V x, V cap) {
  return cap * tanh(x / cap);
}

// Activation::Kind::limited_silu and limited_gate (core/model_config.h).
template <class V>
[[gnu::always_inline]] inline V within(V x, V limit) {
  const V least = V::all(0) - limit;
  return select(limit < x, limit, select(x < least, least, x));
}
template <class V>
[[gnu::always_inline]] inline V limited_silu(V g, V u, V limit) {
  const V s = silu(g);
  return select(limit < s, limit, s) * within(u, limit);
}
template <class V>
[[gnu::always_inline]] inline V limited_gate(V g, V u, V limit) {
  const V s = select(limit < g, limit, g);
  return (within(u, limit) + V::all(1)) * (s * sigmoid(V::all(1.702f) * s));
}

// Activation::Kind::gelu_tanh.
template <class V>
[[gnu::always_inline]] inline V gelu_tanh(V x) {
  const V inner = fma(V::all(0.044715f), x * x * x, x);
  return (V::all(0.5f) * x) * (V::all(1) + tanh(V::all(0x1.988454p-1f) * inner));
}

template <class V>
struct SinCos {
  V sin, cos;
};

template <class V>
[[gnu::always_inline]] inline SinCos<V> sin_cos(V x) {
  const V t = fma(x, V::all(0x1.45f306p-1f), V::all(kRoundToInt));  // n = round(x / (pi/2))
  const V n = t - V::all(kRoundToInt);
  // pi/2 is subtracted in three parts. The first step is exact: both sides are multiples of 2^-23,
  // and their difference is below 1.
  V r = fma(n, V::all(-0x1.921fb6p+0f), x);
  r = fma(n, V::all(0x1.777a5cp-25f), r);
  r = fma(n, V::all(0x1.ee59dap-50f), r);
  const V z = r * r;
  V s = V::all(0x1.6d7b38p-19f);
  s = fma(s, z, V::all(-0x1.a012d2p-13f));
  s = fma(s, z, V::all(0x1.11110ep-7f));
  s = fma(s, z, V::all(-0x1.555556p-3f));
  s = fma(r * z, s, r);
  V c = V::all(-0x1.24f7bp-22f);
  c = fma(c, z, V::all(0x1.a01536p-16f));
  c = fma(c, z, V::all(-0x1.6c16bep-10f));
  c = fma(c, z, V::all(0x1.555556p-5f));
  c = fma(z * z, c, fma(z, V::all(-0.5f), V::all(1)));
  // The quadrant n mod 4 decides if sine and cosine are swapped, and their signs.
  const auto even = shift_left<30>(t) == V::all(0);  // bit 0 as 2.0, bit 1 as the sign of a zero
  const V flip_sin = shift_left<30>(and_bits(t, V::all_bits(2)));
  const V flip_cos = shift_left<30>(and_bits(add_bits(t, V::all_bits(1)), V::all_bits(2)));
  return {xor_bits(select(even, s, c), flip_sin), xor_bits(select(even, c, s), flip_cos)};
}

}  // namespace hocket::math
