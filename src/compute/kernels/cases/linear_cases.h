// Shapes and numbers of matrix products: one list for tests, fuzzing and benches.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/machine.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/tensor/buffer.h"

namespace hocket::cases {

struct LinearCase {
  int rows, k, n;
};

// Every count of rows up to two tile blocks and some more, every width of a group of panels with a
// remainder, and k with padding.
inline std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> list;
  for (int rows = 0; rows <= 40; ++rows) list.push_back({rows, 96, 48});
  for (int panels = 1; panels <= 9; ++panels)
    for (int rows : {1, 2, 3, 4, 7, 19}) list.push_back({rows, 64, panels * kPanelN});
  for (int k : {1, 31, 32, 33, 100, 511, 513, 1000, 2048})
    for (int rows : {1, 5, 34, 64}) list.push_back({rows, k, 40});
  list.push_back({100, 700, 130});
  list.push_back({64, 1056, 17});
  return list;
}

enum class Values : uint8_t { normal, tiny, subnormal, heavy_tails, cancelling };
inline constexpr Values kAllValues[] = {Values::normal, Values::tiny, Values::subnormal,
                                        Values::heavy_tails, Values::cancelling};

// tiny: products near the least normal number; subnormal: products and some operands below it.
template <class T>
void fill(Values kind, std::mt19937& random, std::span<T> out) {
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < out.size(); ++i) {
    float x = normal(random);
    switch (kind) {
      case Values::normal:
        break;
      case Values::tiny:
        x *= 1e-19f;
        break;
      case Values::subnormal:
        x *= i % 7 == 0 ? 3e-39f : 2e-20f;
        break;
      case Values::heavy_tails:
        x = std::exp(4 * x) * (i % 2 == 0 ? 1.0f : -1.0f);
        break;
      case Values::cancelling:
        x = i % 4 < 2 ? 1000 * x : -to_float(out[i - 2]) * (1 + (i % 3 == 0 ? 0x1p-7f : 0.0f));
        break;
    }
    out[i] = from_float<T>(x);
  }
}

template <class T>
inline constexpr WeightFormat format_of =
    dtype_of<T> == DType::f32 ? WeightFormat::f32 : WeightFormat::bf16;

// A matrix as plain rows and packed.
template <class T>
struct PackedMatrix {
  std::vector<T> rows;  // [n, k]
  Buffer memory;
  PackedWeight weight;
};

template <class T>
PackedMatrix<T> packed_matrix(int n, int k, Values kind, std::mt19937& random) {
  PackedMatrix<T> m;
  m.weight.format = format_of<T>;
  m.weight.n = n;
  m.weight.k = k;
  m.memory = *Buffer::allocate(m.weight.bytes());
  m.weight.data = m.memory.data();
  m.rows.resize(int64_t{n} * k);
  fill<T>(kind, random, m.rows);
  pack_rows<T>(View<const T>(m.rows.data(), n, k), 0, reinterpret_cast<T*>(m.memory.data()));
  return m;
}

// Rows padded with zeros to whole k-blocks, `gap` elements of noise between them.
template <class T>
struct PaddedRows {
  std::vector<T> data;
  View<T> view;
};

template <class T>
PaddedRows<T> padded_rows(int rows, int k, int gap, Values kind, std::mt19937& random) {
  const int64_t padded = round_up(k, kBlockK), stride = padded + gap;
  PaddedRows<T> m;
  m.data.resize(rows * stride + padded);
  fill<T>(kind, random, m.data);
  for (int row = 0; row < rows; ++row)
    for (int64_t i = k; i < padded; ++i) m.data[row * stride + i] = T{};
  m.view = View<T>(m.data.data(), rows, k, stride);
  return m;
}

// Returns the levels above ref that this machine can run.
inline std::vector<Isa> vector_isas() {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas)
    if (isa != Isa::ref && runs_here(isa)) isas.push_back(isa);
  return isas;
}

}  // namespace hocket::cases
