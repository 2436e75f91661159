// The tree of combine groups where each sum is rounded to int8 with a scale (CombineCall), for one
// token at a time. The scale of a sum is found from its whole row, so whole rows are added, node
// after node. A sum whose sibling is not computed yet waits as int8.
// Lives in a worker's scratch.   Thread: the worker.
#pragma once

#include <algorithm>
#include <cstring>

#include "compute/kernels/arithmetic/rows.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {

class Int8Sums {
 public:
  // Takes scratch_bytes(cols) of the worker's scratch.
  Int8Sums(Backend& backend, int worker, int64_t cols)
      : kernels_(backend.rows()),
        cols_(cols),
        left_(backend.scratch<float>(worker, scratch_bytes(cols) / sizeof(float))),
        right_(left_ + round_up(cols, kBlockK)),
        pending_(reinterpret_cast<int8_t*>(right_ + round_up(cols, kBlockK))) {}
  static int64_t scratch_bytes(int64_t cols) {
    return round_up(cols, kBlockK) * (2 * int64_t{sizeof(float)} + kMaxPendingSums);
  }

  // Adds the tree, the scale and the shared row to the residual, as ActivationKernels::combine.
  template <class T>
  void add(const CombineRow<T>& row) {
    CombineRow<float> total = {
        .cols = cols_, .scale = row.scale, .shared = row.shared, .residual = row.residual};
    const float one = 1;
    const uint8_t ends = 1;
    const float* const root = left_;
    if (row.num_slots > 0) {
      widen(root_of(row), left_);
      total.y = &root;
      total.weights = &one;
      total.ends = &ends;
      total.num_slots = 1;
    }
    kernels_.of<float>().combine(total);
  }
  // Writes the tree's root as a row of quantized_rows.h.
  template <class T>
  void write(const CombineRow<T>& row, int8_t* to) {
    const Sum root = root_of(row);
    std::memcpy(to, root.q, cols_);
    std::memset(to + cols_, 0, scale_column(cols_) - cols_);
    std::memcpy(to + scale_column(cols_), &root.scale, sizeof root.scale);
  }

 private:
  struct Sum {
    const int8_t* q = nullptr;  // [cols]
    float scale = 0;
  };

  int8_t* pending(int i) { return pending_ + i * round_up(cols_, kBlockK); }
  void widen(const Sum& sum, float* to) const {
    kernels_.of<float>().dequantize(sum.q, sum.scale, cols_, to);
  }
  template <class T>
  Sum rounded(const T* row, int8_t* to) const {
    Sum sum = {.q = to};
    kernels_.of<T>().quantize(
        {.x = row, .n = cols_, .group = cols_, .padded = cols_, .q = to, .scales = &sum.scale});
    return sum;
  }
  // Returns the row of a slot times its weight.
  template <class T>
  Sum slot_of(const CombineRow<T>& row, int slot, int8_t* to) const {
    Sum sum;
    if constexpr (sizeof(T) == 1) {
      sum.q = row.y[slot];
      std::memcpy(&sum.scale, row.y[slot] + scale_column(cols_), sizeof sum.scale);
    } else {
      sum = rounded(row.y[slot], to);
    }
    sum.scale *= row.weights[slot];
    return sum;
  }
  // Adds right_ to left_ and rounds the sum to int8 at `to`.
  Sum added(int8_t* to) {
    for (int64_t i = 0; i < cols_; ++i) left_[i] += right_[i];
    return rounded(left_, to);
  }
  // Precondition: the row has a slot.
  template <class T>
  Sum root_of(const CombineRow<T>& row) {
    Sum waiting[kMaxPendingSums];
    int num_waiting = 0;
    for (int s = 0; s < row.num_slots; ++s) {
      Sum sum = slot_of(row, s, pending(num_waiting));
      if (row.ends[s] == 0) {  // a leaf of several slots
        widen(sum, left_);
        do {
          widen(slot_of(row, ++s, pending(num_waiting)), right_);
          for (int64_t i = 0; i < cols_; ++i) left_[i] += right_[i];
        } while (row.ends[s] == 0);
        sum = rounded(left_, pending(num_waiting));
      }
      for (int node = 1; node < row.ends[s]; ++node) {
        widen(waiting[--num_waiting], left_);
        widen(sum, right_);
        sum = added(pending(num_waiting));
      }
      waiting[num_waiting++] = sum;
    }
    return waiting[0];
  }

  const RowKernels& kernels_;
  int64_t cols_;
  float* left_;
  float* right_;
  int8_t* pending_;  // [kMaxPendingSums, cols]
};

}  // namespace hocket
