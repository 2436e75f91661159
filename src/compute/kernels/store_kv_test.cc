#include "compute/kernels/store_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

struct QkvCase {
  int num_heads, kv_heads, dim, rotary_dim, page_tokens, rows;
  int value_dim = 0;  // 0: dim
  float value_scale = 1;
  bool unit_norms = false, value_norm = false;
};
constexpr QkvCase kQkvCases[] = {{4, 2, 16, 16, 32, 1},
                                 {4, 2, 32, 32, 32, 40},
                                 {16, 4, 64, 64, 64, 70},
                                 {8, 8, 128, 64, 128, 5},
                                 {4, 2, 80, 80, 32, 33},
                                 {4, 1, 48, 16, 96, 100},
                                 {4, 2, 80, 16, 8, 20},
                                 {4, 2, 16, 16, 1, 9},
                                 {4, 2, 24, 8, 32, 9, 16, 0.707f},
                                 {4, 2, 32, 0, 32, 9, 48, 1},
                                 {4, 2, 48, 32, 32, 40, 0, 1, true},
                                 {4, 2, 48, 48, 32, 40, 0, 1, false, true},
                                 {4, 2, 32, 32, 32, 9, 24, 0.5f, false, true}};

// The inputs of store_kv(), and zeroed pages for its output: tokens 5, 6, ... of a sequence on
// shuffled pages.
template <class T>
struct QkvFixture {
  QkvFixture(const QkvCase& c, uint32_t seed, DType stored)
      : shape{.dtype = stored,
              .num_heads = c.kv_heads,
              .key_dim = c.dim,
              .value_dim = c.value_dim > 0 ? c.value_dim : c.dim,
              .page_tokens = c.page_tokens} {
    std::mt19937 random(seed);
    const int columns = (c.num_heads + c.kv_heads) * c.dim + c.kv_heads * shape.value_dim;
    qkv = cases::random_row(int64_t{c.rows} * columns, 2, random);
    q_norm = cases::random_row(c.dim, 1, random);
    k_norm = cases::random_row(c.dim, 1, random);
    cos = cases::random_row(c.rows * c.rotary_dim / 2, 1, random);
    sin = cases::random_row(c.rows * c.rotary_dim / 2, 1, random);
    num_pages = (c.rows + 5) / c.page_tokens + 1;
    for (int r = 0; r < c.rows; ++r) {
      const int page = num_pages - 1 - (r + 5) / c.page_tokens;
      slots.push_back({PageId{page}, (r + 5) % c.page_tokens});
    }
    pages.resize(num_pages * shape.page_bytes());
    q.resize(c.rows * c.num_heads * round_up(c.dim, kBlockK));
    std::ranges::fill(q, from_float<T>(3));
    call = {.qkv = View<const float>(qkv.data(), c.rows, columns),
            .num_heads = c.num_heads,
            .q_norm = seed % 2 == 0 ? std::span<const float>(q_norm) : std::span<const float>(),
            .k_norm = seed % 2 == 0 ? std::span<const float>(k_norm) : std::span<const float>(),
            .style = seed % 4 < 2 ? RopeConfig::Style::half : RopeConfig::Style::interleaved,
            .norm_eps = 1e-6f,
            .value_scale = c.value_scale,
            .unit_norms = c.unit_norms,
            .value_norm = c.value_norm,
            .cos = View<const float>(cos.data(), c.rows, c.rotary_dim / 2),
            .sin = View<const float>(sin.data(), c.rows, c.rotary_dim / 2),
            .slots = slots,
            .q = MatrixView::of(View<T>(q.data(), c.rows, c.num_heads * round_up(c.dim, kBlockK))),
            .kv = {shape, pages.data()}};
  }
  QkvFixture(const QkvFixture&) = delete;

  void run(Isa isa, int num_workers) {
    WorkerPool workers({.num_workers = num_workers});
    Backend backend = *Backend::create(isa, workers, 1024);
    store_kv(backend, call);
  }
  // Returns head `head` of a row, computed by the reference body.
  template <class Y>
  std::vector<Y> head(int row, int head, std::span<const float> norm) const {
    std::vector<Y> y(round_up(shape.key_dim, kBlockK));
    if (!call.unit_norms) {
      rotate(row, head, norm, y.data());
      return y;
    }
    std::vector<float> rotated(shape.key_dim), ones(shape.key_dim, 1.0f);
    rotate(row, head, norm, rotated.data());
    row_kernels(Isa::ref).of<Y>().rms_norm(rotated.data(), ones.data(), shape.key_dim,
                                           call.norm_eps, y.data());
    return y;
  }
  template <class Y>
  void rotate(int row, int head, std::span<const float> norm, Y* y) const {
    row_kernels(Isa::ref).of<Y>().head({.x = call.qkv.row(row) + head * shape.key_dim,
                                        .dim = shape.key_dim,
                                        .norm = norm.empty() ? nullptr : norm.data(),
                                        .eps = call.norm_eps,
                                        .cos = call.cos.row(row),
                                        .sin = call.sin.row(row),
                                        .rotary_dim = static_cast<int>(2 * call.cos.cols),
                                        .style = call.style,
                                        .y = y});
  }

  KvShape shape;
  std::vector<float> qkv, q_norm, k_norm, cos, sin;
  std::vector<KvSlot> slots;
  std::vector<std::byte> pages;
  std::vector<T> q;
  int num_pages = 0;
  StoreKvCall call;
};

// Quantizes a key or value to int8 numbers; returns the scale.
float quantized(std::span<const float> x, std::vector<int8_t>& q) {
  float amax = 0;
  for (float v : x) amax = std::max(amax, std::abs(v));
  q.clear();
  for (float v : x) q.push_back(static_cast<int8_t>(std::nearbyint(v * (127 / amax))));
  return amax / 127;
}

// Stores row `row` into the pages of `kv`, number by number.
template <class T>
void store_row(const QkvFixture<T>& f, int row, const KvLayer& kv) {
  const KvShape& shape = f.shape;
  const auto [page, offset] = f.slots[row];
  for (int h = 0; h < shape.num_heads; ++h) {
    const int before = f.call.num_heads + shape.num_heads, dim = shape.key_dim;
    const int value_dim = shape.value_dim;
    const float* const stored = f.call.qkv.row(row) + before * dim + h * value_dim;
    std::vector<float> v(stored, stored + value_dim);
    if (f.call.value_norm) {
      const std::vector<float> ones(value_dim, 1.0f);
      row_kernels(Isa::ref).f32.rms_norm(stored, ones.data(), value_dim, f.call.norm_eps, v.data());
    }
    for (float& x : v) x *= f.call.value_scale;
    if (shape.dtype == DType::int8) {
      const std::vector<float> key =
          f.template head<float>(row, f.call.num_heads + h, f.call.k_norm);
      std::vector<int8_t> q;
      kv.scales(page, h)[offset] = quantized(std::span(key).first(dim), q);
      for (int d = 0; d < dim; ++d) kv.keys<int8_t>(page, h)[shape.key_offset(offset, d)] = q[d];
      kv.scales(page, h)[shape.page_tokens + offset] = quantized(v, q);
      for (int d = 0; d < value_dim; ++d)
        kv.values<int8_t>(page, h)[shape.value_offset(offset, d)] = q[d];
      continue;
    }
    const std::vector<T> key = f.template head<T>(row, f.call.num_heads + h, f.call.k_norm);
    for (int d = 0; d < dim; ++d) kv.keys<T>(page, h)[shape.key_offset(offset, d)] = key[d];
    for (int d = 0; d < value_dim; ++d)
      kv.values<T>(page, h)[shape.value_offset(offset, d)] = from_float<T>(v[d]);
  }
}

template <class T>
void expect_qkv(const QkvCase& c, uint32_t seed, DType stored = dtype_of<T>) {
  QkvFixture<T> f(c, seed, stored);
  f.run(Isa::ref, 1);
  // Compares every element of q and all bytes of the pages; unwritten bytes must still be zero.
  std::vector<std::byte> pages(f.pages.size());
  for (int r = 0; r < c.rows; ++r) {
    for (int h = 0; h < c.num_heads; ++h) {
      const std::vector<T> want = f.template head<T>(r, h, f.call.q_norm);
      const T* got = f.call.q.template as<T>().row(r) + h * static_cast<int>(want.size());
      ASSERT_EQ(std::memcmp(got, want.data(), want.size() * sizeof(T)), 0);
    }
    store_row(f, r, {f.shape, pages.data()});
  }
  ASSERT_EQ(f.pages, pages);
  for (Isa isa : cases::vector_isas()) {
    for (int num_workers : {1, 3}) {
      QkvFixture<T> g(c, seed, stored);
      g.run(isa, num_workers);
      ASSERT_EQ(g.pages, pages) << isa_name(isa);
      ASSERT_EQ(std::memcmp(g.q.data(), f.q.data(), f.q.size() * sizeof(T)), 0) << isa_name(isa);
    }
  }
}

TEST(QkvTest, EveryHeadGoesWhereTheLayoutSays) {
  uint32_t seed = 0;
  for (const QkvCase& c : kQkvCases) {
    for (int variant = 0; variant < 4; ++variant) {  // with and without norm, both styles
      expect_qkv<Bf16>(c, seed);
      expect_qkv<float>(c, seed);
      expect_qkv<Bf16>(c, seed, DType::int8);
      expect_qkv<float>(c, seed++, DType::int8);
    }
  }
}

// A number that cannot be stored changes the scale of its token and nothing else.
TEST(QkvTest, Int8NotANumberMarksItsScale) {
  QkvFixture<Bf16> f(kQkvCases[1], 1, DType::int8), poisoned(kQkvCases[1], 1, DType::int8);
  const int row = 7, value_column = (4 + 2) * 32 + 5;
  poisoned.qkv[row * poisoned.call.qkv.cols + value_column] = std::nanf("");
  f.run(detect_isa(), 1);
  poisoned.run(detect_isa(), 1);
  const auto [page, offset] = f.slots[row];
  for (int r = 0; r < kQkvCases[1].rows; ++r) {
    const float scale =
        poisoned.call.kv.scales(poisoned.slots[r].page, 0)[32 + poisoned.slots[r].offset];
    EXPECT_EQ(std::isnan(scale), r == row) << r;
  }
  EXPECT_EQ(poisoned.call.kv.scales(page, 0)[offset], f.call.kv.scales(page, 0)[offset]);
}

}  // namespace
}  // namespace hocket
