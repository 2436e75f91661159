#include "compute/kernels/product_kernels.h"

#include <array>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/choose.h"

namespace hocket {
namespace {

using Bf16Body = void (*)(const Product<Bf16>&);
using Fp8Body = void (*)(const ScaledProduct<Bf16>&);
using IntegerBody = IntegerKernels::Body;

// AVX-512 bodies of bf16 and fp8: by FMA, and by VDPBF16PS.
struct FmaBodies {
  static constexpr Bf16Body kBf16 = cpu::avx512_product_bf16;
  static constexpr Fp8Body kFp8 = cpu::avx512_vbmi_product_fp8;
  static constexpr Fp8Body kMx = cpu::avx512_product_mx, kVbmiMx = kMx;
};
struct Vdpbf16psBodies {
  static constexpr Bf16Body kBf16 = cpu::avx512_bf16_product_bf16;
  static constexpr Fp8Body kFp8 = cpu::avx512_bf16_vbmi_product_fp8;
  static constexpr Fp8Body kMx = cpu::avx512_bf16_product_mx,
                           kVbmiMx = cpu::avx512_bf16_vbmi_product_mx;
};

template <class P, void (*few)(const P&), void (*many)(const P&)>
void by_rows(const P& p) {
  (p.rows < kTileRows ? few : many)(p);
}
// Short groups use tiles from that many rows on: each tile of rows ends each group with all of its
// 16 rows.
constexpr int kShortGroupTileRows = 12;
template <IntegerBody few, IntegerBody short_groups, IntegerBody long_groups>
void by_rows_and_groups(const ScaledProduct<int8_t>& p) {
  const bool is_short = p.group_blocks <= kMaxTileGroupBlocks;
  if (p.rows < (is_short ? kShortGroupTileRows : kTileRows)) return few(p);
  (is_short ? short_groups : long_groups)(p);
}

template <IntegerBody few, IntegerBody many>
void by_group_rows(const ScaledProduct<int8_t>& p) {
  (p.rows < kShortGroupTileRows ? few : many)(p);
}

template <Bf16Body bf16, void (*tile)(const std::byte*, Bf16*)>
void widened_fp8(const ScaledProduct<Bf16>& p) {
  cpu::widened_product_fp8(p, {tile, bf16});
}
// On tiles, weights are widened once for all rows.
template <Fp8Body few, Bf16Body tiles>
void vbmi_fp8(const ScaledProduct<Bf16>& p) {
  p.rows < kTileRows ? few(p) : cpu::widened_product_fp8(p, {cpu::avx512_vbmi_widen_tile, tiles});
}

template <Bf16Body bf16, void (*tile)(const cpu::MxTile&, Bf16*)>
void widened_mx(const ScaledProduct<Bf16>& p) {
  cpu::widened_product_mx(p, {tile, bf16});
}
template <Fp8Body few, Bf16Body tiles, void (*tile)(const cpu::MxTile&, Bf16*)>
constexpr Fp8Body kMxByRows = by_rows<ScaledProduct<Bf16>, few, widened_mx<tiles, tile>>;

// An AVX-512 machine may lack VBMI and VNNI; an AMX machine may lack integer tiles.
template <class Vector>
ProductKernels vector_level(Isa isa, IntegerKernels integers) {
  const bool vbmi = has_feature("avx512_vbmi");
  return {isa,
          Vector::kBf16,
          cpu::avx512_product_f32,
          vbmi ? Vector::kFp8 : widened_fp8<Vector::kBf16, cpu::avx2_widen_tile>,
          integers,
          vbmi ? Vector::kVbmiMx : Vector::kMx};
}

template <class Vector, Bf16Body tiles>
ProductKernels tile_level_of(Isa isa, IntegerKernels integers) {
  constexpr Bf16Body kBf16 = by_rows<Product<Bf16>, Vector::kBf16, tiles>;
  const bool vbmi = has_feature("avx512_vbmi");
  return {isa,
          kBf16,
          cpu::avx512_product_f32,
          vbmi ? vbmi_fp8<Vector::kFp8, kBf16> : widened_fp8<kBf16, cpu::avx2_widen_tile>,
          integers,
          vbmi ? kMxByRows<Vector::kVbmiMx, tiles, cpu::avx512_vbmi_widen_mx_tile>
               : kMxByRows<Vector::kMx, tiles, cpu::avx512_widen_mx_tile>};
}
template <Bf16Body tiles>
ProductKernels tile_level(Isa isa, IntegerKernels integers) {
  return uses_vdpbf16ps(isa) ? tile_level_of<Vdpbf16psBodies, tiles>(isa, integers)
                             : tile_level_of<FmaBodies, tiles>(isa, integers);
}

constexpr IntegerKernels kRefIntegers = {
    ref::product_int8, ref::product_int4, ref::product_q8_0,  ref::product_q4_k,
    ref::product_q5_k, ref::product_q6_k, ref::product_table, ref::product_table_of_16};
constexpr IntegerKernels kAvx2Integers = {cpu::avx2_product_int8,  cpu::avx2_product_int4,
                                          cpu::avx2_product_q8_0,  cpu::avx2_product_q4_k,
                                          cpu::avx2_product_q5_k,  cpu::avx2_product_q6_k,
                                          cpu::avx2_product_table, cpu::avx2_product_table_of_16};
constexpr IntegerKernels kVnniIntegers = {
    cpu::avx512_vnni_product_int8,  cpu::avx512_vnni_product_int4,
    cpu::avx512_vnni_product_q8_0,  cpu::avx512_vnni_product_q4_k,
    cpu::avx512_vnni_product_q5_k,  cpu::avx512_vnni_product_q6_k,
    cpu::avx512_vnni_product_table, cpu::avx512_vnni_product_table_of_16};

// Tiles from some rows on, and the bodies of kFew below.
template <const IntegerKernels& kFew>
constexpr IntegerKernels kOnTiles = {
    by_rows_and_groups<kFew.int8, cpu::amx_group_product_int8, cpu::amx_product_int8>,
    by_rows_and_groups<kFew.int4, cpu::amx_group_product_int4, cpu::amx_product_int4>,
    by_group_rows<kFew.q8_0, cpu::amx_group_product_q8_0>,
    by_group_rows<kFew.q4_k, cpu::amx_group_product_q4_k>,
    by_group_rows<kFew.q5_k, cpu::amx_group_product_q5_k>,
    by_group_rows<kFew.q6_k, cpu::amx_group_product_q6_k>,
    by_group_rows<kFew.table, cpu::amx_group_product_table>,
    by_group_rows<kFew.table_of_16, cpu::amx_group_product_table_of_16>};
template <const IntegerKernels& kFew>
constexpr IntegerKernels kOnEmulatedTiles = {
    by_rows_and_groups<kFew.int8, cpu::amx_emulated_group_product_int8,
                       cpu::amx_emulated_product_int8>,
    by_rows_and_groups<kFew.int4, cpu::amx_emulated_group_product_int4,
                       cpu::amx_emulated_product_int4>,
    by_group_rows<kFew.q8_0, cpu::amx_emulated_group_product_q8_0>,
    by_group_rows<kFew.q4_k, cpu::amx_emulated_group_product_q4_k>,
    by_group_rows<kFew.q5_k, cpu::amx_emulated_group_product_q5_k>,
    by_group_rows<kFew.q6_k, cpu::amx_emulated_group_product_q6_k>,
    by_group_rows<kFew.table, cpu::amx_emulated_group_product_table>,
    by_group_rows<kFew.table_of_16, cpu::amx_emulated_group_product_table_of_16>};

std::array<ProductKernels, 6> make_kernels() {
  const bool vnni = has_feature("avx512_vnni"), tiles = has_feature("amx_int8") && vnni;
  const IntegerKernels& integers = vnni ? kVnniIntegers : kAvx2Integers;
  // Processors with a fast VDPBF16PS (AMD's) also have the units that the body in place wants.
  IntegerKernels beside_vdpbf16ps = integers;
  if (vnni) beside_vdpbf16ps.int4 = cpu::avx512_vnni_product_int4_in_place;
  const IntegerKernels& emulated =
      vnni ? kOnEmulatedTiles<kVnniIntegers> : kOnEmulatedTiles<kAvx2Integers>;
  return {{
      {Isa::ref, ref::product_bf16, ref::product_f32, ref::product_fp8, kRefIntegers,
       ref::product_mx},
      {Isa::avx2, cpu::avx2_product_bf16, cpu::avx2_product_f32,
       widened_fp8<cpu::avx2_product_bf16, cpu::avx2_widen_tile>, kAvx2Integers,
       cpu::avx2_product_mx},
      vector_level<FmaBodies>(Isa::avx512, integers),
      vector_level<Vdpbf16psBodies>(Isa::avx512_bf16, beside_vdpbf16ps),
      tile_level<cpu::amx_product_bf16>(Isa::amx, tiles ? kOnTiles<kVnniIntegers> : integers),
      tile_level<cpu::amx_emulated_product_bf16>(Isa::amx_emulated, emulated),
  }};
}

}  // namespace

const ProductKernels& product_kernels(Isa isa) {
  static const std::array<ProductKernels, 6> all = make_kernels();
  const ProductKernels& kernels = all[static_cast<size_t>(isa)];
  HOCKET_CHECK(kernels.isa == isa);
  return kernels;
}

}  // namespace hocket
