#include "compute/kernels/embedding.h"

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

}  // namespace

void embed(Backend& backend, std::span<const TokenId> ids, const PackedWeight& table,
           View<float> out) {
  HOCKET_CHECK(out.rows == std::ssize(ids));
  HOCKET_CHECK(out.cols == table.k);
  for (TokenId id : ids) HOCKET_CHECK((value(id) >= 0 && value(id) < table.n));
  backend.workers().run(static_cast<int>(ids.size()), [&](int row, int) {
    with_dtype(activation_dtype(table.format),
               [&](auto t) { unpack_row<decltype(t)>(table, value(ids[row]), out.row(row)); });
  });
}

}  // namespace hocket
