// The bodies behind product_kernels(). A unit is compiled for its instruction set, so it keeps
// everything but these functions to itself: an inline function shared with other units could be
// linked in the higher set's version.
#pragma once

#include "compute/kernels/product_kernels.h"

namespace hocket::ref {
void product_bf16(const Product<Bf16>& p);
void product_f32(const Product<float>& p);
}  // namespace hocket::ref

namespace hocket::cpu {

// Some rows at a time, widened to fp32 in scratch; weights are widened in registers.
void avx2_product_bf16(const Product<Bf16>& p);
void avx2_product_f32(const Product<float>& p);
void avx512_product_bf16(const Product<Bf16>& p);
void avx512_product_f32(const Product<float>& p);

// 2 x 2 tiles of 16 x 16; any number of rows, best from kTileRows on. The emulated body runs the
// same code on a software tile unit.
void amx_product_bf16(const Product<Bf16>& p);
void amx_emulated_product_bf16(const Product<Bf16>& p);

// Rows that the vector bodies widen at once, and that the tile bodies keep in tiles.
inline constexpr int kVectorRows = 8;
inline constexpr int kTileBlockRows = 32;

}  // namespace hocket::cpu
