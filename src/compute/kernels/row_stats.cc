#include "compute/kernels/row_stats.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void row_stats(Backend& backend, View<const float> x, std::span<RowStats> stats) {
  HOCKET_CHECK(x.cols >= 1);
  HOCKET_CHECK(static_cast<int64_t>(stats.size()) == x.rows);
  for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) backend.rows().row_stats(x.row(r), x.cols, &stats[r]);
  });
}

void exp_row(const Backend& backend, std::span<const float> x, float max, std::span<float> p) {
  HOCKET_CHECK(x.size() == p.size());
  backend.rows().exp_row(x.data(), static_cast<int64_t>(x.size()), max, p.data());
}

}  // namespace hocket
