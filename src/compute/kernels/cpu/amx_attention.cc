// One softmax block of attention in tiles: up to 16 query rows are one tile, and four tiles hold
// their results with four panels of keys or of values.
//
//   for each two units of keys: for each k-block of the queries: scores += q . keys
//   softmax: probabilities of bf16 take the place of the scores
//   for each four panels of values: for each unit: o += p . values
//
// The order of sums inside `+=` is that of all bodies: arithmetic/product.h. The emulated tiles
// share this code.
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "compute/kernels/cpu/avx512_softmax.inl.h"
#include "compute/kernels/cpu/emulated_tiles.h"
#include "compute/kernels/cpu/hardware_tiles.h"

namespace hocket::cpu {
namespace {

constexpr int kPanelsAtATime = 4;
// Bytes from one row of scores to the next, and so of the probabilities that take their place.
constexpr int64_t kRowBytes = kSoftmaxBlock * sizeof(float);

// The operands of a tile of rows are 32 neighbouring numbers of bf16, as they are.
struct TileStep {
  using Number = Bf16;

  static Lanes store_probabilities(Lanes lower, Lanes upper, float* row, int i, Lanes sum) {
    const Lanes a = rounded_to_bf16(lower), b = rounded_to_bf16(upper);
    Bf16* const to = reinterpret_cast<Bf16*>(row) + i;
    a.store(to);
    b.store(to + 16);
    return (sum + a) + b;
  }
};
constexpr int kOperandsOfBlock = kBlockK * sizeof(Bf16) / sizeof(float);

void prepare_queries(const Bf16* q, int64_t n, float* operands) {
  std::memcpy(operands, q, n * sizeof(Bf16));
}

void fetch_lines(const Bf16* from, int64_t numbers) {
  for (int64_t i = 0; i < numbers; i += 32)
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
}

// Fetches this block's values and the next block's keys.
void prefetch_keys(const BlockRows<Bf16>& b, int count) {
  for (int unit = 0; unit < count; ++unit) {
    for (int panel = 0; panel < b.v_panels; ++panel)
      fetch_lines(b.values[unit] + panel * b.value_stride, kTileElements);
    for (int panel = 0; panel < 2; ++panel)
      fetch_lines(b.next_keys[unit] + panel * b.key_stride, int64_t{b.k_blocks} * kTileElements);
  }
}

// c (tile kC) += a (tile 4) . the panel at w
template <int kC, class Tiles>
void multiply_panel(Tiles& tiles, const Bf16* w) {
  constexpr int kB = 6 + kC % 2;
  tiles.template load<kB>(w, 64);
  tiles.template multiply_bf16<kC, 4, kB>();
}

// Calls f(std::integral_constant<int, i>) for the first `panels` of the four result tiles.
template <class F>
void for_each_tile(int panels, F&& f) {
  f(std::integral_constant<int, 0>());
  if (panels > 1) f(std::integral_constant<int, 1>());
  if (panels > 2) f(std::integral_constant<int, 2>());
  if (panels > 3) f(std::integral_constant<int, 3>());
}

// scores = q . keys of the units [unit, unit + units), at most two.
template <class Tiles>
void score(Tiles& tiles, const BlockRows<Bf16>& b, int unit, int units) {
  const Bf16* panels[kPanelsAtATime];
  for (int i = 0; i < 2 * units; ++i) panels[i] = b.keys[unit + i / 2] + i % 2 * b.key_stride;
  for_each_tile(2 * units, [&](auto i) { tiles.template zero<i()>(); });
  for (int k = 0; k < b.k_blocks; ++k) {
    tiles.template load<4>(b.q + k * kOperandsOfBlock, b.q_stride * int64_t{sizeof(float)});
    for_each_tile(2 * units, [&](auto i) {
      multiply_panel<i()>(tiles, panels[i()] + int64_t{k} * kTileElements);
    });
  }
  float* const y = b.scores + unit * kBlockK;
  for_each_tile(2 * units,
                [&](auto i) { tiles.template store<i()>(y + i() * kPanelN, kRowBytes); });
}

// Up to 16 rows of a call, and the units of keys [first, count) that they see.
struct Group {
  BlockRows<Bf16> b;
  int first, count;
  alignas(kLine) float alpha[kGroupRows];

  Group(const BlockRows<Bf16>& all, int row) : b(all) {
    b.rows = all.rows - row < kGroupRows ? all.rows - row : kGroupRows;
    b.q += row * all.q_stride;
    b.hidden += row;
    b.visible += row;
    b.scores += row * kSoftmaxBlock;
    b.m += row;
    b.l += row;
    b.o += int64_t{row} * all.v_panels * kPanelN;
    first = b.hidden[0] / kBlockK;
    count = units(b.visible[b.rows - 1]);
  }
};

// Multiplies the scores of the units [first, count) by b.scale.
void scale_scores(const BlockRows<Bf16>& b, int first, int count) {
  const Lanes scale = Lanes::all(b.scale);
  for (int row = 0; row < b.rows; ++row) {
    float* const s = b.scores + row * kSoftmaxBlock;
    for (int i = first * kBlockK; i < count * kBlockK; i += kPanelN)
      (Lanes::load(s + i) * scale).store(s + i);
  }
}

void scale_rows(const BlockRows<Bf16>& b, const float* alpha) {
  const int v_dim = b.v_panels * kPanelN;
  for (int row = 0; row < b.rows; ++row) {
    if (alpha[row] == 1) continue;
    const Lanes factor = Lanes::all(alpha[row]);
    float* const o = b.o + int64_t{row} * v_dim;
    for (int i = 0; i < v_dim; i += kPanelN) (Lanes::load(o + i) * factor).store(o + i);
  }
}

// o += p . values, for the panels [panel, panel + panels), at most four.
template <class Tiles>
void add_values(Tiles& tiles, const Group& g, int panel, int panels) {
  const BlockRows<Bf16>& b = g.b;
  const int64_t o_bytes = int64_t{b.v_panels} * kPanelN * sizeof(float);
  float* const o = b.o + panel * kPanelN;
  for_each_tile(panels, [&](auto i) { tiles.template load<i()>(o + i() * kPanelN, o_bytes); });
  for (int unit = g.first; unit < g.count; ++unit) {
    tiles.template load<4>(reinterpret_cast<const Bf16*>(b.scores) + unit * kBlockK, kRowBytes);
    const Bf16* const values = b.values[unit] + panel * b.value_stride;
    for_each_tile(panels,
                  [&](auto i) { multiply_panel<i()>(tiles, values + i() * b.value_stride); });
  }
  for_each_tile(panels, [&](auto i) { tiles.template store<i()>(o + i() * kPanelN, o_bytes); });
}

template <class Tiles>
void score(Tiles& tiles, const Group& g) {
  tiles.configure(2 * kBlockK, g.b.rows);
  for (int unit = g.first; unit < g.count; unit += 2)
    score(tiles, g.b, unit, unit + 1 < g.count ? 2 : 1);
}

void softmax(Group& g) {
  scale_scores(g.b, g.first, g.count);
  if (g.b.soft_cap > 0 || g.b.hidden[g.b.rows - 1] > 0) cap_and_hide(g.b);
  softmax<TileStep, kGroupRows>(g.b, g.alpha);
  scale_rows(g.b, g.alpha);
}

template <class Tiles>
void add_values(Tiles& tiles, const Group& g) {
  tiles.configure(2 * kBlockK, g.b.rows);
  for (int panel = 0; panel < g.b.v_panels; panel += kPanelsAtATime) {
    const int remaining = g.b.v_panels - panel;
    add_values(tiles, g, panel, remaining < kPanelsAtATime ? remaining : kPanelsAtATime);
  }
}

// Two groups take turns, since a tile that is loaded waits until all stores to it are in the cache.
template <class Tiles>
void run(const BlockRows<Bf16>& b) {
  Tiles tiles;
  Group lower(b, 0);
  const bool two = b.rows > kGroupRows;
  Group upper(b, two ? kGroupRows : 0);
  if (b.next_keys != nullptr) prefetch_keys(b, upper.count);
  score(tiles, lower);
  if (two) score(tiles, upper);
  softmax(lower);
  if (two) softmax(upper);
  add_values(tiles, lower);
  if (two) add_values(tiles, upper);
  tiles.release();
}

template <class Tiles>
constexpr BlockBody<Bf16> kBody = {prepare_queries, kOperandsOfBlock, 2 * kGroupRows, run<Tiles>};

}  // namespace

constinit const BlockBody<Bf16> kBf16BlockByTiles = kBody<HardwareTiles>;
constinit const BlockBody<Bf16> kBf16BlockByEmulatedTiles = kBody<EmulatedTiles>;

}  // namespace hocket::cpu
