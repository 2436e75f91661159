// Shapes of grouped expert layers, and experts of any weight format: for tests and benches.
#pragma once

#include <cstring>
#include <vector>

#include "compute/kernels/cases/scaled_cases.h"
#include "compute/kernels/experts.h"

namespace hocket::cases {

struct ExpertsCase {
  int hidden, intermediate;
  std::vector<int> rows;  // rows of each expert
};

inline std::vector<ExpertsCase> experts_cases() {
  return {
      {64, 32, {1}},
      {96, 40, {0, 3, 0, 1, 17}},            // intermediate needs padding
      {40, 100, {9, 0, 0, 8, 33, 2, 1, 0}},  // no dimension fills whole panels
      {128, 192, {70, 0, 5, 64}},
      {128, 96, {0, 0, 0}},
      {32, 1100, {2, 70}},  // several tasks per expert, results in pieces
  };
}

// A packed matrix with its memory.
struct OwnedWeight {
  Buffer memory;
  std::vector<float> bias, column_scales;
  PackedWeight weight;

  // Allocates room for n rows in the format of `like`.
  OwnedWeight(int n, const PackedWeight& like) : bias(n), column_scales(n), weight(like) {
    weight.n = n;
    memory = *Buffer::allocate(weight.bytes());
    weight.data = memory.data();
    if (like.scales != nullptr) weight.scales = at_scales();
    if (like.zeros != nullptr) weight.zeros = reinterpret_cast<const uint8_t*>(at_zeros());
    weight.bias = like.bias == nullptr ? nullptr : bias.data();
    weight.column_scales = like.column_scales == nullptr ? nullptr : column_scales.data();
  }
  OwnedWeight(OwnedWeight&&) = default;
  OwnedWeight& operator=(OwnedWeight&&) = default;

  void copy_panel(const PackedWeight& from, int panel, int to) {
    const int64_t numbers = from.groups() * kPanelN;
    std::memcpy(memory.data() + to * from.panel_bytes(), from.panel(panel), from.panel_bytes());
    const int64_t bytes = from.panel_scale_bytes();
    if (from.scales != nullptr)
      std::memcpy(at_scales() + to * bytes, from.scales + panel * bytes, bytes);
    if (from.zeros != nullptr)
      std::memcpy(at_zeros() + to * numbers, from.zeros + panel * numbers, numbers);
    const auto copy_columns = [&](const float* all, std::vector<float>& out) {
      if (all != nullptr)
        std::copy(all + panel * kPanelN, all + std::min(from.n, (panel + 1) * kPanelN),
                  &out[to * kPanelN]);
    };
    copy_columns(from.bias, bias);
    copy_columns(from.column_scales, column_scales);
  }

 private:
  std::byte* at_scales() const { return memory.data() + weight.data_bytes(); }
  std::byte* at_zeros() const { return at_scales() + weight.scale_bytes(); }
};

// Makes a random matrix with a bias; group is as in ScaledCase.
inline OwnedWeight random_weight(WeightFormat format, int group, int n, int k,
                                 std::mt19937& random) {
  const auto owned = [&](const Buffer& memory, PackedWeight weight) {
    OwnedWeight w(n, weight);
    std::memcpy(w.memory.data(), memory.data(), weight.bytes());
    fill<float>(Values::normal, random, w.bias);
    w.weight.bias = w.bias.data();
    if (weight.format == WeightFormat::nvfp4) {
      fill<float>(Values::normal, random, w.column_scales);
      w.weight.column_scales = w.column_scales.data();
    }
    return w;
  };
  if (format == WeightFormat::bf16 || format == WeightFormat::f32) {
    OwnedWeight w(0, PackedWeight());
    with_dtype(activation_dtype(format), [&](auto t) {
      const auto m = packed_matrix<decltype(t)>(n, k, Values::normal, random);
      w = owned(m.memory, m.weight);
    });
    return w;
  }
  const ScaledMatrix m = scaled_matrix({format, group, 0, k, n}, random);
  return owned(m.memory, m.weight);
}

// Experts, with gate and up also as separate matrices.
struct Experts {
  std::vector<OwnedWeight> gate, up, gate_up, down;
  std::vector<ExpertWeights> weights;
};

inline Experts make_experts(const ExpertsCase& c, WeightFormat format, int group,
                            std::mt19937& random) {
  Experts e;
  const int padded = static_cast<int>(round_up(c.intermediate, kBlockK));
  for (size_t i = 0; i < c.rows.size(); ++i) {
    e.gate.push_back(random_weight(format, group, c.intermediate, c.hidden, random));
    e.up.push_back(random_weight(format, group, c.intermediate, c.hidden, random));
    e.down.push_back(random_weight(format, group, c.hidden, c.intermediate, random));
    OwnedWeight both(2 * padded, e.gate[i].weight);
    for (int panel = 0; panel < e.gate[i].weight.panels(); ++panel) {
      both.copy_panel(e.gate[i].weight, panel, 2 * panel);
      both.copy_panel(e.up[i].weight, panel, 2 * panel + 1);
    }
    e.gate_up.push_back(std::move(both));
    e.weights.push_back({e.gate_up[i].weight, e.down[i].weight});
  }
  return e;
}

inline std::vector<int32_t> offsets_of(const std::vector<int>& rows) {
  std::vector<int32_t> offsets = {0};
  for (int count : rows) offsets.push_back(offsets.back() + count);
  return offsets;
}

}  // namespace hocket::cases
