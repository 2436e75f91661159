// The tile unit of the processor: tiles 0 to 3 hold results, 4 and 5 rows, 6 and 7 weights. It uses
// assembly because the intrinsics of g++ 12 do not take a tile number that is a template parameter,
// nor tell the compiler which memory they read.
#pragma once

#include <cstdint>

namespace hocket::cpu {
namespace {  // compiled for a higher instruction set than other units: nothing may be shared with
             // them

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// For each number of rows in tiles 0 to 5. Made once, since loading a configuration that was stored
// just before would wait for the stores.
struct TileConfigs {
  explicit constexpr TileConfigs(int k_bytes) {
    for (int num_rows = 0; num_rows <= 16; ++num_rows) {
      TileConfig& config = of[num_rows];
      for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<uint8_t>(num_rows);
      config.row_bytes[4] = config.row_bytes[5] = static_cast<uint16_t>(k_bytes);
      config.rows[6] = config.rows[7] = static_cast<uint8_t>(k_bytes / 4);
    }
  }
  TileConfig of[17];
};
constexpr TileConfigs kTilesOf64{64}, kTilesOf32{32}, kTilesOf16{16};

class HardwareTiles {
 public:
  // k_bytes: bytes of k in one product, 64, 32 or 16; num_rows: rows of tiles 0 to 5, at most 16.
  void configure(int k_bytes, int num_rows = 16) {
    const TileConfigs& all = k_bytes == 64 ? kTilesOf64 : k_bytes == 32 ? kTilesOf32 : kTilesOf16;
    asm volatile("ldtilecfg %0" : : "m"(all.of[num_rows]));
  }
  void release() { asm volatile("tilerelease"); }

  template <int kId>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kId));
  }
  template <int kId>
  void load(const void* from, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride_bytes), "i"(kId)
                 : "memory");
  }
  template <int kId>
  void store(void* to, int64_t stride_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(stride_bytes), "i"(kId)
                 : "memory");
  }
  // fp32 c += a . b
  template <int kC, int kA, int kB>
  void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // int32 c += a . b, a signed and b unsigned bytes.
  template <int kC, int kA, int kB>
  void multiply_bytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // The same for signed a and signed b.
  template <int kC, int kA, int kB>
  void multiply_signed_bytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace hocket::cpu
