#include "compute/kernels/qkv.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

struct QkvCase {
  int num_heads, kv_heads, dim, rotary_dim, page_tokens, rows;
};
constexpr QkvCase kCases[] = {{4, 2, 16, 16, 32, 1},   {4, 2, 32, 32, 32, 40},
                              {16, 4, 64, 64, 64, 70}, {8, 8, 128, 64, 128, 5},
                              {4, 2, 80, 80, 32, 33},  {4, 1, 48, 16, 96, 100}};

// What finish_qkv() reads, and pages of zeros that it writes to: tokens 5, 6, ... of a sequence on
// shuffled pages.
template <class T>
struct Fixture {
  Fixture(const QkvCase& c, uint32_t seed)
      : shape{dtype_of<T>, c.kv_heads, c.dim, c.dim, c.page_tokens} {
    std::mt19937 random(seed);
    const int heads = c.num_heads + 2 * c.kv_heads;
    qkv = cases::random_row(int64_t{c.rows} * heads * c.dim, 2, random);
    q_norm = cases::random_row(c.dim, 1, random);
    k_norm = cases::random_row(c.dim, 1, random);
    cos = cases::random_row(c.rows * c.rotary_dim / 2, 1, random);
    sin = cases::random_row(c.rows * c.rotary_dim / 2, 1, random);
    num_pages = (c.rows + 5) / c.page_tokens + 1;
    for (int r = 0; r < c.rows; ++r) {
      const int page = num_pages - 1 - (r + 5) / c.page_tokens;
      slots.push_back({PageId{page}, (r + 5) % c.page_tokens});
    }
    pages.resize(num_pages * shape.page_elements());
    q.resize(c.rows * c.num_heads * round_up(c.dim, kBlockK));
    std::ranges::fill(q, from_float<T>(3));
    call = {.qkv = View<const float>(qkv.data(), c.rows, heads * c.dim),
            .num_heads = c.num_heads,
            .q_norm = seed % 2 == 0 ? std::span<const float>(q_norm) : std::span<const float>(),
            .k_norm = seed % 2 == 0 ? std::span<const float>(k_norm) : std::span<const float>(),
            .norm_eps = 1e-6f,
            .cos = View<const float>(cos.data(), c.rows, c.rotary_dim / 2),
            .sin = View<const float>(sin.data(), c.rows, c.rotary_dim / 2),
            .slots = slots,
            .q = MatrixView::of(View<T>(q.data(), c.rows, c.num_heads * round_up(c.dim, kBlockK))),
            .kv = {shape, pages.data()}};
  }
  Fixture(const Fixture&) = delete;

  void run(Isa isa, int num_workers) {
    WorkerPool workers({.num_workers = num_workers});
    Backend backend = *Backend::create(isa, workers, 1024);
    finish_qkv(backend, call);
  }
  // Head `head` of a row, by the reference body.
  std::vector<T> head(int row, int head, std::span<const float> norm) const {
    std::vector<T> y(round_up(shape.key_dim, kBlockK));
    row_kernels(Isa::ref).of<T>().head({.x = call.qkv.row(row) + head * shape.key_dim,
                                        .dim = shape.key_dim,
                                        .norm = norm.empty() ? nullptr : norm.data(),
                                        .eps = call.norm_eps,
                                        .cos = call.cos.row(row),
                                        .sin = call.sin.row(row),
                                        .rotary_dim = static_cast<int>(2 * call.cos.cols),
                                        .y = y.data()});
    return y;
  }

  KvShape shape;
  std::vector<float> qkv, q_norm, k_norm, cos, sin;
  std::vector<KvSlot> slots;
  std::vector<T> pages, q;
  int num_pages = 0;
  QkvCall call;
};

template <class T>
void expect_qkv(const QkvCase& c, uint32_t seed) {
  Fixture<T> f(c, seed);
  f.run(Isa::ref, 1);
  // Every element of q, and all that stands in the pages: what no token wrote is still zero.
  std::vector<T> pages(f.pages.size());
  const KvLayer expected = {f.shape, pages.data()};
  for (int r = 0; r < c.rows; ++r) {
    for (int h = 0; h < c.num_heads; ++h) {
      const std::vector<T> want = f.head(r, h, f.call.q_norm);
      const T* got = f.call.q.template as<T>().row(r) + h * static_cast<int>(want.size());
      ASSERT_EQ(std::memcmp(got, want.data(), want.size() * sizeof(T)), 0);
    }
    for (int h = 0; h < c.kv_heads; ++h) {
      const KvSlot slot = f.slots[r];
      const std::vector<T> key = f.head(r, c.num_heads + h, f.call.k_norm);
      const float* v = f.call.qkv.row(r) + (c.num_heads + c.kv_heads + h) * c.dim;
      for (int d = 0; d < c.dim; ++d) {
        expected.keys<T>(slot.page, h)[f.shape.key_offset(slot.offset, d)] = key[d];
        expected.values<T>(slot.page, h)[f.shape.value_offset(slot.offset, d)] =
            from_float<T>(v[d]);
      }
    }
  }
  ASSERT_EQ(std::memcmp(f.pages.data(), pages.data(), pages.size() * sizeof(T)), 0);
  for (Isa isa : cases::vector_isas()) {
    for (int num_workers : {1, 3}) {
      Fixture<T> g(c, seed);
      g.run(isa, num_workers);
      ASSERT_EQ(std::memcmp(g.pages.data(), pages.data(), pages.size() * sizeof(T)), 0)
          << isa_name(isa);
      ASSERT_EQ(std::memcmp(g.q.data(), f.q.data(), f.q.size() * sizeof(T)), 0) << isa_name(isa);
    }
  }
}

TEST(QkvTest, EveryHeadGoesWhereTheLayoutSays) {
  uint32_t seed = 0;
  for (const QkvCase& c : kCases) {
    for (int norm = 0; norm < 2; ++norm) {
      expect_qkv<Bf16>(c, seed);
      expect_qkv<float>(c, seed++);
    }
  }
}

}  // namespace
}  // namespace hocket
