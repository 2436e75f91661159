#include "compute/kernels/linear.h"

#include "compute/kernels/task_product.h"

namespace hocket {
namespace {

void put(const float* from, int count, float* to, Store store) {
  if (store == Store::add) {
    for (int i = 0; i < count; ++i) to[i] = to[i] + from[i];
  } else {
    std::copy(from, from + count, to);
  }
}

template <class T>
void run_linear(Backend& backend, View<const T> x, const PackedWeight& w, View<float> y,
                Store store) {
  const int rows = static_cast<int>(x.rows), num_workers = backend.workers().size();
  const int width = panels_per_task(w.panels(), w.k_blocks(), rows, num_workers);
  const int panel_tasks = (w.panels() + width - 1) / width;
  const int height = rows_per_task(panel_tasks, rows, num_workers);
  const int row_tasks = (rows + height - 1) / height;
  backend.workers().run(panel_tasks * row_tasks, [&](int task, int worker) {
    const int panel = task % panel_tasks * width, first = task / panel_tasks * height;
    const int panels = std::min(width, w.panels() - panel), column = panel * kPanelN;
    const int64_t count = std::min(height, rows - first);
    const Product<T> p = product_of(x.slice_rows(first, count), w, panel, panels);
    const bool whole_panels = column + panels * kPanelN <= w.n;
    if (store == Store::overwrite && whole_panels)
      return multiply_into(backend, worker, p, y.row(first) + column, y.stride);
    const int columns = std::min(panels * kPanelN, w.n - column);
    multiply_then(backend, worker, p, [&](int row, int num_rows, const float* results) {
      for (int i = 0; i < num_rows; ++i)
        put(results + i * panels * kPanelN, columns, y.row(first + row + i) + column, store);
    });
  });
}

}  // namespace

void linear(Backend& backend, MatrixView x, const PackedWeight& w, View<float> y, Store store) {
  HOCKET_CHECK(x.cols == w.k);
  HOCKET_CHECK(x.dtype == activation_dtype(w.format));
  HOCKET_CHECK(y.rows == x.rows);
  HOCKET_CHECK(y.cols == w.n);
  if (x.rows == 0) return;
  HOCKET_CHECK((x.rows == 1 || x.stride >= int64_t{w.k_blocks()} * kBlockK));
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    run_linear<T>(backend, x.as<const T>(), w, y, store);
  });
}

}  // namespace hocket
