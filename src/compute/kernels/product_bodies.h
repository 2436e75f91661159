// The bodies behind product_kernels(). A unit is compiled for its instruction set, so it keeps
// everything but these functions to itself: an inline function shared with other units could be
// linked in the higher set's version.
#pragma once

#include "compute/kernels/product_kernels.h"

namespace hocket::ref {
void product_bf16(const Product<Bf16>& p);
void product_f32(const Product<float>& p);
void product_fp8(const ScaledProduct<Bf16>& p);
void product_int8(const ScaledProduct<int8_t>& p);
void product_int4(const ScaledProduct<int8_t>& p);
}  // namespace hocket::ref

namespace hocket::cpu {

// Weights are widened in registers; AVX2 widens some rows at a time to fp32 in scratch.
void avx2_product_bf16(const Product<Bf16>& p);
void avx2_product_f32(const Product<float>& p);
void avx512_product_bf16(const Product<Bf16>& p);
void avx512_product_f32(const Product<float>& p);
void avx512_vbmi_product_fp8(const ScaledProduct<Bf16>& p);

// Widens the weights of some panels and one group to bf16 in scratch, then multiplies them with all
// rows, which so share what widening costs.
struct Widening {
  void (*tile)(const std::byte* from, Bf16* to);  // one tile of fp8
  void (*bf16)(const Product<Bf16>&);
};
void widened_product_fp8(const ScaledProduct<Bf16>& p, const Widening& by);
void avx2_widen_tile(const std::byte* from, Bf16* to);
void avx512_vbmi_widen_tile(const std::byte* from, Bf16* to);

// Numbers of 8 bits times numbers of 8 bits into int32 sums of a group.
void avx2_product_int8(const ScaledProduct<int8_t>& p);
void avx2_product_int4(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_int8(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_int4(const ScaledProduct<int8_t>& p);

// 2 x 2 tiles of 16 x 16; any number of rows, best from kTileRows on. The emulated bodies run the
// same code on a software tile unit.
void amx_product_bf16(const Product<Bf16>& p);
void amx_product_int8(const ScaledProduct<int8_t>& p);
void amx_product_int4(const ScaledProduct<int8_t>& p);
void amx_emulated_product_bf16(const Product<Bf16>& p);
void amx_emulated_product_int8(const ScaledProduct<int8_t>& p);
void amx_emulated_product_int4(const ScaledProduct<int8_t>& p);

// Rows that the vector bodies widen at once, and that the tile bodies keep in tiles.
inline constexpr int kVectorRows = 8;
inline constexpr int kTileBlockRows = 32;
// Rows that avx512_product widens to fp32 at once: as many as stay in L2, but no fewer than 32.
constexpr int rows_together(int k_blocks) {
  constexpr int kLeast = 32, kMost = 96, kWideNumbers = 128 << 10;
  const int rows = kWideNumbers / (k_blocks * kBlockK);
  return rows < kLeast ? kLeast : rows < kMost ? rows : kMost;
}
// The widened weights of fp8, their results, and the scratch of their product.
inline constexpr int64_t kWidenedScratchBytes = 64 << 10;

}  // namespace hocket::cpu
