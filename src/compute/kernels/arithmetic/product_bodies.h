// The bodies that product_kernels() returns. Each unit is compiled for its instruction set and
// keeps everything but these functions to itself, because the linker could take an inline function
// that units share from the unit with the higher instruction set. HOCKET_CHECK may bring in such a
// function, so callers check formats; tools/check_units.py looks for all.
#pragma once

#include "compute/kernels/arithmetic/product.h"

namespace hocket::ref {
void product_bf16(const Product<Bf16>& p);
void product_f32(const Product<float>& p);
void product_fp8(const ScaledProduct<Bf16>& p);
void product_mx(const ScaledProduct<Bf16>& p);
void product_int8(const ScaledProduct<int8_t>& p);
void product_int4(const ScaledProduct<int8_t>& p);
void product_q8_0(const ScaledProduct<int8_t>& p);
void product_q4_k(const ScaledProduct<int8_t>& p);
void product_table(const ScaledProduct<int8_t>& p);
void product_q5_k(const ScaledProduct<int8_t>& p);
void product_q6_k(const ScaledProduct<int8_t>& p);
void product_table_of_16(const ScaledProduct<int8_t>& p);
}  // namespace hocket::ref

namespace hocket::cpu {

// Names: instruction set, `product`, format. The vector bodies prepare rows in scratch: they are
// widened to fp32, or put in the order of VDPBF16PS (cpu/avx512_bf16_step.h). Weights are prepared
// in registers; AVX-512 prepares them once for all rows where there are more than kVectorRows.
void avx2_product_bf16(const Product<Bf16>& p);
void avx2_product_f32(const Product<float>& p);
void avx512_product_bf16(const Product<Bf16>& p);
void avx512_product_f32(const Product<float>& p);
void avx512_bf16_product_bf16(const Product<Bf16>& p);
void avx512_vbmi_product_fp8(const ScaledProduct<Bf16>& p);
void avx512_bf16_vbmi_product_fp8(const ScaledProduct<Bf16>& p);

// Widens the weights of some panels and one group to bf16 in scratch, then multiplies them with all
// rows, so that the rows share the cost of widening.
struct Widening {
  void (*tile)(const std::byte* from, Bf16* to);  // widens one tile of fp8
  void (*bf16)(const Product<Bf16>&);
};
void widened_product_fp8(const ScaledProduct<Bf16>& p, const Widening& by);
void avx2_widen_tile(const std::byte* from, Bf16* to);
// The same for mxfp4, mxfp8 and nvfp4, some k at a time.
struct MxTile {
  WeightFormat format;
  const std::byte* numbers;
  const std::byte* scales;  // [1 or 2 groups][16 columns]
};
struct MxWidening {
  void (*tile)(const MxTile& from, Bf16* to);
  void (*bf16)(const Product<Bf16>&);
};
void widened_product_mx(const ScaledProduct<Bf16>& p, const MxWidening& by);
void avx2_widen_mx_tile(const MxTile& from, Bf16* to);
void avx2_product_mx(const ScaledProduct<Bf16>& p);
void avx512_widen_mx_tile(const MxTile& from, Bf16* to);
void avx512_product_mx(const ScaledProduct<Bf16>& p);
void avx512_bf16_product_mx(const ScaledProduct<Bf16>& p);
void avx512_vbmi_widen_mx_tile(const MxTile& from, Bf16* to);
void avx512_bf16_vbmi_product_mx(const ScaledProduct<Bf16>& p);

void avx512_vbmi_widen_tile(const std::byte* from, Bf16* to);

// Products of 8-bit numbers into int32 sums, one sum per group.
void avx2_product_int8(const ScaledProduct<int8_t>& p);
void avx2_product_int4(const ScaledProduct<int8_t>& p);
void avx2_product_q8_0(const ScaledProduct<int8_t>& p);
void avx2_product_q4_k(const ScaledProduct<int8_t>& p);
void avx2_product_table(const ScaledProduct<int8_t>& p);
void avx2_product_q5_k(const ScaledProduct<int8_t>& p);
void avx2_product_q6_k(const ScaledProduct<int8_t>& p);
void avx2_product_table_of_16(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_int8(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_int4(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_q8_0(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_q4_k(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_table(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_q5_k(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_q6_k(const ScaledProduct<int8_t>& p);
void avx512_vnni_product_table_of_16(const ScaledProduct<int8_t>& p);
// The same without unpacking weights for many rows: faster where the shifts that unpack have units
// of their own beside those that multiply.
void avx512_vnni_product_int4_in_place(const ScaledProduct<int8_t>& p);

// Result blocks of 2 x 2 tiles of 16 x 16, for any number of rows, best from kTileRows on. The
// emulated bodies run the same code on a software tile unit.
void amx_product_bf16(const Product<Bf16>& p);
void amx_product_int8(const ScaledProduct<int8_t>& p);
void amx_product_int4(const ScaledProduct<int8_t>& p);
void amx_emulated_product_bf16(const Product<Bf16>& p);
void amx_emulated_product_int8(const ScaledProduct<int8_t>& p);
void amx_emulated_product_int4(const ScaledProduct<int8_t>& p);
// The same for groups of at most kMaxTileGroupBlocks blocks: faster, since there the fp32 sums of
// the groups take longer than the products.
void amx_group_product_int8(const ScaledProduct<int8_t>& p);
void amx_group_product_int4(const ScaledProduct<int8_t>& p);
void amx_group_product_q8_0(const ScaledProduct<int8_t>& p);
void amx_group_product_q4_k(const ScaledProduct<int8_t>& p);
void amx_group_product_table(const ScaledProduct<int8_t>& p);
void amx_group_product_q5_k(const ScaledProduct<int8_t>& p);
void amx_group_product_q6_k(const ScaledProduct<int8_t>& p);
void amx_group_product_table_of_16(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_int8(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_int4(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_q8_0(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_q4_k(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_table(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_q5_k(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_q6_k(const ScaledProduct<int8_t>& p);
void amx_emulated_group_product_table_of_16(const ScaledProduct<int8_t>& p);

}  // namespace hocket::cpu
