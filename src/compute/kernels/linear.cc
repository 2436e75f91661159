#include "compute/kernels/linear.h"

#include "compute/kernels/neighbour_tasks.h"
#include "compute/kernels/task_product.h"

namespace hocket {
namespace {

// Adds a panel at a time, because the compiler vectorizes loops of a known length.
void add(const float* __restrict from, int count, float* __restrict to) {
  int i = 0;
  for (; i + kPanelN <= count; i += kPanelN)
    for (int lane = 0; lane < kPanelN; ++lane) to[i + lane] = to[i + lane] + from[i + lane];
  for (; i < count; ++i) to[i] = to[i] + from[i];
}

void put(const float* from, int count, float* to, StoreMode store) {
  if (store == StoreMode::add) {
    add(from, count, to);
  } else {
    std::copy(from, from + count, to);
  }
}

void run_linear(Backend& backend, const ProductRows& x, const PackedWeight& w, View<float> y,
                StoreMode store) {
  const int rows = static_cast<int>(y.rows), num_workers = backend.workers().size();
  const int width = panels_per_task({w.panels(), w.panel_bytes(), rows, num_workers});
  const int panel_tasks = (w.panels() + width - 1) / width;
  const int height = rows_per_task(panel_tasks, rows, num_workers);
  const int row_tasks = (rows + height - 1) / height;
  run_neighbours(backend.workers(), panel_tasks * row_tasks, [&](int task, int worker) {
    const int panel = task % panel_tasks * width, first = task / panel_tasks * height;
    const ProductRows::Part part = {.row = first,
                                    .rows = std::min(height, rows - first),
                                    .panel = panel,
                                    .panels = std::min(width, w.panels() - panel),
                                    .worker = worker};
    const int column = panel * kPanelN, all_columns = part.panels * kPanelN;
    const int columns = std::min(all_columns, w.n - column);
    if (store == StoreMode::overwrite && columns == all_columns)
      return x.multiply(w, part, y.row(first) + column, y.stride);
    x.multiply_then(w, part, [&](int row, View<const float> results) {
      for (int i = 0; i < results.rows; ++i)
        put(results.row(i), columns, y.row(row + i) + column, store);
    });
  });
}

}  // namespace

void linear(Backend& backend, MatrixView x, const PackedWeight& w, View<float> y, StoreMode store) {
  HOCKET_CHECK(x.cols == w.k);
  HOCKET_CHECK(x.dtype == activation_dtype(w.format));
  HOCKET_CHECK(y.rows == x.rows);
  HOCKET_CHECK(y.cols == w.n);
  HOCKET_CHECK((x.rows <= 1 || x.stride >= round_up(w.k, kBlockK)));
  const int64_t max_rows = ProductRows::max_rows(backend, w);
  for (int64_t first = 0, rows; first < x.rows; first += rows) {
    rows = equal_share(x.rows - first, max_rows);
    const ProductRows ready(backend, x.slice_rows(first, rows), w);
    run_linear(backend, ready, w, y.slice_rows(first, rows), store);
  }
}

}  // namespace hocket
