// Rows on their way from a MatrixReader into packed panels, changing their format where the two
// differ. Private to the room.   Thread: any, for disjoint rows, with a scratch of its own.
#pragma once

#include "compute/weights/matrix_reader.h"
#include "compute/weights/quantize.h"

namespace hocket {

// Rows from row_begin on as T: Bf16 (rounded once) or float (exact); quantized ones are
// dequantized. False where a quantized number is NaN.
template <class T>
[[nodiscard]] bool read_matrix_rows(const MatrixReader& from, int row_begin, View<T> out,
                                    RowScratch& scratch);

// `rows` rows from row_begin on to the panels of `to`, from its row packed_row on.
// False where a quantized number is NaN, or one that shall be quantized is not finite, or a scale
// is not, or is too large for its format.
struct RowMove {
  int row_begin = 0, rows = 0, packed_row = 0;
};
[[nodiscard]] bool pack_matrix_rows(const MatrixReader& from, const RowMove& move,
                                    const PackedWeight& to, RowScratch& scratch);

// One head of latent attention (kernels/latent_attention.h): its rows [nope | value] from row_begin
// on; key_absorb is key_up transposed, the same rounded numbers. All f32 or all bf16.
// False where a quantized number is NaN.
struct LatentHead {
  const PackedWeight &key_up, &value_up, &key_absorb;
};
[[nodiscard]] bool pack_latent_head(const MatrixReader& from, int row_begin, const LatentHead& to,
                                    RowScratch& scratch);

}  // namespace hocket
