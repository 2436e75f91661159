// Splits the rows of an operation among the workers, into a few ranges for each worker that are
// large enough to be worth waking it.
#pragma once

#include <algorithm>

#include "compute/kernels/backend.h"

namespace hocket {

// Calls body(begin, end, worker) for ranges that cover [0, rows). A row costs `row_elements` of
// work.
template <class Body>
void for_row_ranges(Backend& backend, int64_t rows, int64_t row_elements, Body&& body) {
  constexpr int64_t kMinElements = 8192;
  const int64_t least = std::max<int64_t>(1, kMinElements / std::max<int64_t>(1, row_elements));
  const int64_t even = rows / (4 * backend.workers().size());
  const int64_t step = std::max(least, even);
  const auto num_ranges = static_cast<int>((rows + step - 1) / step);
  backend.workers().run(num_ranges, [&](int range, int worker) {
    body(range * step, std::min(rows, (range + 1) * step), worker);
  });
}

}  // namespace hocket
