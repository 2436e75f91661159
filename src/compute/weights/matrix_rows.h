// Moves rows from a MatrixReader into packed panels and converts them if the formats differ.
// Private to the room.   Thread: any, for disjoint rows, with its own scratch.
#pragma once

#include "compute/weights/matrix_reader.h"
#include "compute/weights/quantize.h"

namespace hocket {

// Reads rows from row_begin on as T: Bf16 (rounded once) or float (exact). Quantized rows are
// dequantized. Returns false if a quantized number is NaN.
template <class T>
[[nodiscard]] bool read_matrix_rows(const MatrixReader& from, int row_begin, View<T> out,
                                    RowScratch& scratch);

// Packs `rows` rows from row_begin on into the panels of `to`, starting at its row packed_row.
// Returns false if a quantized number is NaN, a number to quantize is not finite, or a scale is not
// finite or too large for its format.
struct RowMove {
  int row_begin = 0, rows = 0, packed_row = 0;
};
[[nodiscard]] bool pack_matrix_rows(const MatrixReader& from, const RowMove& move,
                                    const PackedWeight& to, RowScratch& scratch);

// Packs one head of latent attention (kernels/latent_attention.h): its rows [nope | value] start at
// row_begin; key_absorb is key_up transposed, with the same rounded numbers. All f32 or all bf16.
// Returns false if a quantized number is NaN.
struct LatentHead {
  const PackedWeight &key_up, &value_up, &key_absorb;
};
[[nodiscard]] bool pack_latent_head(const MatrixReader& from, int row_begin, const LatentHead& to,
                                    RowScratch& scratch);

}  // namespace hocket
