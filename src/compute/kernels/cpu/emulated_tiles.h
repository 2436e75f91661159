// A tile unit in plain code, with the layout and the arithmetic of the hardware: eight tiles of 16
// rows x 64 bytes. A bf16 product keeps two sums per column, for even and for odd k, and adds them
// at the end; a product of bytes is exact. Source: docs/contracts/arithmetic.md, "the canonical
// product"; Intel SDM, TDPBF16PS, TDPBSUD, TDPBSSD. The thread sets FTZ and DAZ.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hocket::cpu {
namespace {  // compiled for a higher instruction set than other units: nothing may be shared with
             // them

// Tiles 0 to 3 hold results, 4 and 5 rows, 6 and 7 weights.
class EmulatedTiles {
 public:
  // k_bytes: bytes of k in one product, at most 64; num_rows: rows of tiles 0 to 5, at most 16.
  void configure(int k_bytes, int num_rows = 16) {
    k_bytes_ = k_bytes;
    num_rows_ = num_rows;
  }
  void release() { k_bytes_ = 0; }

  template <int kTile>
  void zero() {
    require_configured();
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* from, int64_t stride_bytes) {
    zero<kTile>();
    for (int row = 0; row < rows(kTile); ++row)
      std::memcpy(tiles_[kTile][row], static_cast<const char*>(from) + row * stride_bytes,
                  row_bytes(kTile));
  }
  template <int kTile>
  void store(void* to, int64_t stride_bytes) const {
    require_configured();
    for (int row = 0; row < rows(kTile); ++row)
      std::memcpy(static_cast<char*>(to) + row * stride_bytes, tiles_[kTile][row],
                  row_bytes(kTile));
  }
  // fp32 c += a . b
  template <int kC, int kA, int kB>
  void multiply_bf16() {
    require_configured();
    for (int row = 0; row < num_rows_; ++row) {
      float even[16] = {}, odd[16] = {}, c[16];
      for (int pair = 0; pair < k_bytes_ / 4; ++pair) {
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
  // int32 c += a . b, a signed and b unsigned bytes.
  template <int kC, int kA, int kB>
  void multiply_bytes() {
    multiply_integers<kC, kA, kB, uint8_t>();
  }
  // The same for signed a and signed b.
  template <int kC, int kA, int kB>
  void multiply_signed_bytes() {
    multiply_integers<kC, kA, kB, int8_t>();
  }

 private:
  template <int kC, int kA, int kB, class B>
  void multiply_integers() {
    require_configured();
    for (int row = 0; row < num_rows_; ++row)
      for (int quad = 0; quad < k_bytes_ / 4; ++quad)
        for (int column = 0; column < 16; ++column)
          for (int shift = 0; shift < 32; shift += 8) {
            const auto a = static_cast<int8_t>(tiles_[kA][row][quad] >> shift);
            const auto b = static_cast<B>(tiles_[kB][quad][column] >> shift);
            tiles_[kC][row][column] += static_cast<uint32_t>(a * b);
          }
  }
  static float low(uint32_t pair) { return number(pair << 16); }
  static float high(uint32_t pair) { return number(pair & 0xffff0000u); }
  static float number(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  int rows(int tile) const { return tile >= 6 ? k_bytes_ / 4 : num_rows_; }
  int row_bytes(int tile) const { return tile == 4 || tile == 5 ? k_bytes_ : 64; }
  void require_configured() const {
    if (k_bytes_ == 0) __builtin_trap();  // the hardware faults too
  }

  int k_bytes_ = 0, num_rows_ = 0;
  uint32_t tiles_[8][16][16];
};

}  // namespace
}  // namespace hocket::cpu
