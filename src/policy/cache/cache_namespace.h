// Requests of different namespaces never share a cached page. A namespace made from a number is
// that number; one made from names is a hash of 128 bits, so that no client can produce the
// namespace of another tenant.
#pragma once

#include <cstdint>
#include <functional>

namespace hocket {

struct CacheNamespace {
  uint64_t high = 0, low = 0;

  constexpr CacheNamespace(uint64_t number = 0) : low(number) {}  // 0: the common namespace
  constexpr CacheNamespace(uint64_t high_half, uint64_t low_half)
      : high(high_half), low(low_half) {}

  friend bool operator==(const CacheNamespace&, const CacheNamespace&) = default;
};

}  // namespace hocket

template <>
struct std::hash<hocket::CacheNamespace> {
  size_t operator()(const hocket::CacheNamespace& name) const noexcept {
    return name.low ^ (name.high * 0x9e3779b97f4a7c15u);
  }
};
