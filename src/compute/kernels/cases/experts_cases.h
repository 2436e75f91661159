// Shapes of grouped expert layers: one list for tests and benches.
#pragma once

#include <vector>

#include "compute/kernels/cases/linear_cases.h"
#include "compute/kernels/experts.h"

namespace hocket::cases {

struct ExpertsCase {
  int hidden, intermediate;
  std::vector<int> rows;  // of each expert
};

inline std::vector<ExpertsCase> experts_cases() {
  return {
      {64, 32, {1}},
      {96, 40, {0, 3, 0, 1, 17}},            // the middle is padded
      {40, 100, {9, 0, 0, 8, 33, 2, 1, 0}},  // no whole panels anywhere
      {256, 512, {70, 0, 5, 64}},
      {128, 96, {0, 0, 0}},
      {64, 1100, {2, 100}},  // several tasks an expert, results in pieces
  };
}

// Experts with packed random weights. gate and up are kept row-major too: [intermediate, hidden].
template <class T>
struct Experts {
  struct Plain {
    std::vector<T> gate, up;
  };
  std::vector<Plain> plain;
  std::vector<PackedMatrix<T>> gate_up, down;
  std::vector<ExpertWeights> weights;
};

template <class T>
Experts<T> make_experts(const ExpertsCase& c, std::mt19937& random) {
  Experts<T> e;
  const int64_t padded = round_up(c.intermediate, kBlockK);
  for (size_t i = 0; i < c.rows.size(); ++i) {
    typename Experts<T>::Plain plain;
    for (std::vector<T>* m : {&plain.gate, &plain.up}) {
      m->resize(int64_t{c.intermediate} * c.hidden);
      fill<T>(Values::normal, random, *m);
    }
    PackedMatrix<T> both;
    both.weight.format = format_of<T>;
    both.weight.n = static_cast<int>(2 * padded);
    both.weight.k = c.hidden;
    both.memory = *Buffer::allocate(both.weight.bytes());
    both.weight.data = both.memory.data();
    T* packed = reinterpret_cast<T*>(both.memory.data());
    for (int begin = 0; begin < c.intermediate; begin += kPanelN) {
      const int count = std::min(kPanelN, c.intermediate - begin);
      const int64_t from = int64_t{begin} * c.hidden;
      pack_rows<T>(View<const T>(plain.gate.data() + from, count, c.hidden), 2 * begin, packed);
      pack_rows<T>(View<const T>(plain.up.data() + from, count, c.hidden), 2 * begin + kPanelN,
                   packed);
    }
    e.plain.push_back(std::move(plain));
    e.gate_up.push_back(std::move(both));
    e.down.push_back(packed_matrix<T>(c.hidden, c.intermediate, Values::normal, random));
    e.weights.push_back({e.gate_up.back().weight, e.down.back().weight});
  }
  return e;
}

inline std::vector<int32_t> offsets_of(const std::vector<int>& rows) {
  std::vector<int32_t> offsets = {0};
  for (int count : rows) offsets.push_back(offsets.back() + count);
  return offsets;
}

}  // namespace hocket::cases
