#include "compute/weights/matrix_rows.h"

#include <cmath>
#include <type_traits>

namespace hocket {
namespace {

template <class T>
bool pack_plain(const MatrixReader& from, const RowMove& move, const PackedWeight& to,
                RowScratch& scratch) {
  const View<T> values = scratch.values<T>(move.rows, to.k);
  if (!read_matrix_rows<T>(from, move.row_begin, values, scratch)) return false;
  pack_rows<T>(View<const T>(values), move.packed_row, static_cast<T*>(const_cast<void*>(to.data)));
  return true;
}

// Packs float16 scales and integer scales into S, Q4kScales also the minima.
template <class S>
void pack_block_scales(const ScaledRows& rows, int packed_row, const PackedWeight& to) {
  constexpr int kScales = std::extent_v<decltype(S::scales)>;  // a column's
  for (int64_t row = 0; row < rows.scales.rows; ++row)
    for (int64_t i = 0; i < rows.scales.cols; ++i) {
      const int64_t column = packed_row + row, at = column % kPanelN, in_block = i % kScales;
      auto& block = const_cast<S&>(to.block_scales<S>(column, i / kScales * kScaleBlockGroups));
      const BlockFactors by = rows.block_scales.row(row)[i / kScales];
      auto& scale = block.scales[in_block][at];
      scale = static_cast<std::remove_reference_t<decltype(scale)>>(rows.scales.row(row)[i]);
      block.d[at] = float_to_f16(by.d);
      if constexpr (std::is_same_v<S, Q4kScales>) {
        block.dmin[at] = float_to_f16(by.dmin);
        block.mins[in_block][at] = rows.zeros.row(row)[i];
      }
    }
}

struct PackedScales {
  bool finite = true;   // every scale is, in the packed format
  int64_t changed = 0;  // scales of int4 that float16 does not hold
};
PackedScales pack_scaled(const ScaledRows& rows, int packed_row, const PackedWeight& to) {
  auto* const data = static_cast<uint8_t*>(const_cast<void*>(to.data));
  const View<const uint8_t> numbers = rows.numbers;
  if (to.format == WeightFormat::fp8 || to.format == WeightFormat::mxfp8)
    pack_rows<uint8_t>(numbers, packed_row, data);
  if (to.format == WeightFormat::int8 || to.format == WeightFormat::q8_0)
    pack_int8_rows(numbers, packed_row, data);
  if (to.format == WeightFormat::int4 || to.format == WeightFormat::q4_k || has_table(to.format))
    pack_int4_rows(numbers, packed_row, data);
  if (to.format == WeightFormat::q5_k) pack_q5_k_rows(numbers, packed_row, data);
  if (to.format == WeightFormat::q6_k) pack_q6_k_rows(numbers, packed_row, data);
  if (to.format == WeightFormat::mxfp4 || to.format == WeightFormat::nvfp4)
    pack_fp4_rows(numbers, packed_row, data);
  for (size_t row = 0; row < rows.column_scales.size(); ++row)
    const_cast<float*>(to.column_scales)[packed_row + row] = rows.column_scales[row];
  if (has_block_scales(to.format)) {
    if (has_minima(to.format)) {
      pack_block_scales<Q4kScales>(rows, packed_row, to);
    } else if (has_scales_of_16(to.format)) {
      pack_block_scales<ScalesOf16>(rows, packed_row, to);
    } else {
      pack_block_scales<TableScales>(rows, packed_row, to);
    }
    return {};
  }
  PackedScales scales;
  for (int64_t row = 0; row < rows.scales.rows; ++row)
    for (int64_t g = 0; g < rows.scales.cols; ++g) {
      const int64_t at = to.scale_index(packed_row + row, g);
      store_scale(to.format, rows.scales.row(row)[g], const_cast<std::byte*>(to.scales), at);
      const float packed = scale_at(to.format, to.scales, at);
      scales.finite &= std::isfinite(packed);
      scales.changed += to.format == WeightFormat::int4 && packed != rows.scales.row(row)[g];
      if (to.zeros != nullptr) const_cast<uint8_t*>(to.zeros)[at] = rows.zeros.row(row)[g];
    }
  return scales;
}

}  // namespace

template <class T>
bool read_matrix_rows(const MatrixReader& from, int row_begin, View<T> out, RowScratch& scratch) {
  const bool as_stored = from.in_rows() || from.kind() == MatrixReader::Kind::plain;
  if (as_stored && !(from.in_rows() && std::is_same_v<T, Bf16>)) {
    from.read(row_begin, out);
    return true;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (from.kind() == MatrixReader::Kind::random) {
      from.read(row_begin, out);
      return true;
    }
    const ScaledRows scaled = scratch.scaled(from.format(), out.rows, out.cols);
    if (!from.read(row_begin, scaled)) return false;
    dequantize_scaled_rows(scaled, out);
    return true;
  } else {
    const View<float> values = scratch.values<float>(out.rows, out.cols);
    if (!read_matrix_rows<float>(from, row_begin, values, scratch)) return false;
    for (int64_t i = 0; i < out.rows * out.cols; ++i) out.data[i] = from_float<T>(values.data[i]);
    return true;
  }
}
template bool read_matrix_rows<float>(const MatrixReader&, int, View<float>, RowScratch&);
template bool read_matrix_rows<Bf16>(const MatrixReader&, int, View<Bf16>, RowScratch&);

bool pack_matrix_rows(const MatrixReader& from, const RowMove& move, const PackedWeight& to,
                      RowScratch& scratch) {
  if (to.format == WeightFormat::f32) return pack_plain<float>(from, move, to, scratch);
  if (to.format == WeightFormat::bf16) return pack_plain<Bf16>(from, move, to, scratch);
  const MatrixFormat format{to.format, to.group};
  if (from.kind() == MatrixReader::Kind::scaled && from.format() == format) {
    const ScaledRows scaled = scratch.scaled(format, move.rows, to.k);
    if (!from.read(move.row_begin, scaled)) return false;
    const PackedScales scales = pack_scaled(scaled, move.packed_row, to);
    if (!from.in_rows()) scratch.changed_scales += scales.changed;
    return scales.finite;
  }
  const View<float> values = scratch.values<float>(move.rows, to.k);
  if (!read_matrix_rows<float>(from, move.row_begin, values, scratch)) return false;
  const ScaledRows scaled = scratch.scaled(format, move.rows, to.k);
  return quantize_scaled_rows(values, scaled) && pack_scaled(scaled, move.packed_row, to).finite;
}

bool pack_latent_head(const MatrixReader& from, int row_begin, const LatentHead& to,
                      RowScratch& scratch) {
  bool finite = true;
  with_dtype(to.key_up.format == WeightFormat::f32 ? DType::f32 : DType::bf16, [&](auto t) {
    using T = decltype(t);
    const int nope = to.key_up.n, value = to.value_up.n, rank = to.key_up.k;
    std::vector<T> rows_memory(int64_t{nope + value} * rank), turned_memory(int64_t{nope} * rank);
    const View<T> rows(rows_memory.data(), nope + value, rank);
    const View<T> turned(turned_memory.data(), rank, nope);
    finite = read_matrix_rows<T>(from, row_begin, rows, scratch);
    for (int row = 0; row < nope; ++row)
      for (int col = 0; col < rank; ++col) turned.row(col)[row] = rows.row(row)[col];
    const auto pack = [](View<const T> all, const PackedWeight& packed) {
      pack_rows<T>(all, 0, static_cast<T*>(const_cast<void*>(packed.data)));
    };
    pack(rows.slice_rows(0, nope), to.key_up);
    pack(rows.slice_rows(nope, value), to.value_up);
    pack(turned, to.key_absorb);
  });
  return finite;
}

}  // namespace hocket
