// A tile unit in plain code, with the layout and the arithmetic of the hardware's: eight tiles of
// 16 rows x 64 bytes; a product keeps two sums a column, of even and of odd k, and adds them at the
// end. Source: docs/contracts/arithmetic.md, "the canonical product"; Intel SDM, TDPBF16PS. FTZ and
// DAZ are the thread's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hocket::cpu {
namespace {  // compiled for a higher instruction set than other units: nothing may be shared with
             // them

class EmulatedTiles {
 public:
  void configure() { configured_ = true; }
  void release() { configured_ = false; }

  template <int kTile>
  void zero() {
    require_configured();
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* from, int64_t stride_bytes) {
    require_configured();
    for (int row = 0; row < 16; ++row)
      std::memcpy(tiles_[kTile][row], static_cast<const char*>(from) + row * stride_bytes, 64);
  }
  template <int kTile>
  void store(void* to, int64_t stride_bytes) const {
    require_configured();
    for (int row = 0; row < 16; ++row)
      std::memcpy(static_cast<char*>(to) + row * stride_bytes, tiles_[kTile][row], 64);
  }
  // c += a . b
  template <int kC, int kA, int kB>
  void product() {
    require_configured();
    for (int row = 0; row < 16; ++row) {
      float even[16] = {}, odd[16] = {}, c[16];
      for (int pair = 0; pair < 16; ++pair) {
        const uint32_t a = tiles_[kA][row][pair];
        for (int column = 0; column < 16; ++column) {
          const uint32_t b = tiles_[kB][pair][column];
          even[column] = std::fma(low(a), low(b), even[column]);
          odd[column] = std::fma(high(a), high(b), odd[column]);
        }
      }
      std::memcpy(c, tiles_[kC][row], sizeof c);
      for (int column = 0; column < 16; ++column) c[column] += even[column] + odd[column];
      std::memcpy(tiles_[kC][row], c, sizeof c);
    }
  }

 private:
  static float low(uint32_t pair) { return number(pair << 16); }
  static float high(uint32_t pair) { return number(pair & 0xffff0000u); }
  static float number(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  void require_configured() const {
    if (!configured_) __builtin_trap();  // the hardware faults too
  }

  bool configured_ = false;
  uint32_t tiles_[8][16][16];
};

}  // namespace
}  // namespace hocket::cpu
