#include "compute/moe/result_norms.h"

#include <algorithm>

#include "compute/kernels/norm.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void clear_results(Backend& backend, WorkBuffers& work, const Half& half) {
  const View<float> rows = work.results.slice_rows(half.rows.begin, half.rows.count);
  for_row_ranges(backend, rows.rows, rows.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) std::fill_n(rows.row(r), rows.cols, 0.0f);
  });
}

void add_results(Backend& backend, const Results& results, WorkBuffers& work, const Half& half) {
  const auto& [shared, norms, eps] = results;
  const View<float> experts = work.results.slice_rows(half.rows.begin, half.rows.count);
  const View<float> residual = work.residual.slice_rows(half.rows.begin, half.rows.count);
  rms_norm_in_place(backend, shared, norms.shared, eps);
  add_rms_norm(backend, experts, norms.experts, eps, shared);
  add_rms_norm(backend, shared, norms.both, eps, residual);
  for_row_ranges(backend, residual.rows, residual.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      backend.rows().scale(results.norms.scale[0], residual.cols, residual.row(r));
  });
}

}  // namespace hocket
