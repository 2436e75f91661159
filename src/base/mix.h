// Spreads every bit of a number over all 64: equal inputs give equal outputs, similar ones very
// different outputs. For counter-based generators; it hides no secret. Source: G. Steele, D. Lea,
// C. Flood, "Fast splittable pseudorandom number generators", 2014 (the finalizer of splitmix64).
#pragma once

#include <cstdint>

namespace hocket {

// Distance between the inputs of consecutive draws.
inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15u;

constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace hocket
