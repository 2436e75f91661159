#include "compute/kernels/embedding.h"

#include <algorithm>

namespace hocket {
namespace {

// Unpacks one row of a packed table; its pairs of k are a panel's width apart.
template <class T>
void unpack_row(const PackedWeight& table, int row, float* out) {
  const T* packed = table.panel_as<T>(0);
  const int k_blocks = table.k_blocks();
  for (int k = 0; k < table.k; k += 2) {
    const T* pair = packed + packed_offset(row, k, k_blocks);
    out[k] = to_float(pair[0]);
    if (k + 1 < table.k) out[k + 1] = to_float(pair[1]);
  }
}

// The same of numbers under scales, of which a quad of k lies together.
void unpack_int8_row(const PackedWeight& table, int row, float* out) {
  const auto* const panel = reinterpret_cast<const uint8_t*>(table.panel(row / kPanelN));
  const int column = row % kPanelN;
  for (int begin = 0; begin < table.k; begin += table.group) {
    const int64_t at = table.scale_index(row, begin / table.group);
    const float scale = scale_at(table.format, table.scales, at);
    const int zero = table.zeros[at];
    for (int k = begin; k < std::min(begin + table.group, table.k); ++k) {
      const int64_t block = k / kIntegerBlockK, quad = k % kIntegerBlockK / 4;
      const uint8_t number =
          panel[block * tile_bytes(table.format) + quad * 64 + column * 4 + k % 4];
      out[k] = static_cast<float>(number - zero) * scale;
    }
  }
}

}  // namespace

void embed(Backend& backend, std::span<const TokenId> ids, const PackedWeight& table,
           View<float> out) {
  HOCKET_CHECK(out.rows == std::ssize(ids));
  HOCKET_CHECK(out.cols == table.k);
  for (TokenId id : ids) HOCKET_CHECK((value(id) >= 0 && value(id) < table.n));
  backend.workers().run(static_cast<int>(ids.size()), [&](int row, int) {
    if (table.format == WeightFormat::int8)
      return unpack_int8_row(table, value(ids[row]), out.row(row));
    with_dtype(activation_dtype(table.format),
               [&](auto t) { unpack_row<decltype(t)>(table, value(ids[row]), out.row(row)); });
  });
}

}  // namespace hocket
