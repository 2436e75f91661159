#include "compute/kernels/store_latent_kv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compute/kernels/cases/row_cases.h"

namespace hocket {
namespace {

using Style = RopeConfig::Style;

struct LatentKvCase {
  int num_heads, nope_dim, rope_dim, kv_rank, page_tokens, rows;
  Style style;
};
// Sizes of DeepSeek-V3 and of small models; dims that need padding.
constexpr LatentKvCase kLatentKvCases[] = {{16, 128, 64, 512, 64, 3, Style::interleaved},
                                           {4, 16, 16, 32, 32, 70, Style::interleaved},
                                           {2, 24, 10, 40, 32, 33, Style::interleaved},
                                           {3, 8, 34, 17, 96, 50, Style::half},
                                           {1, 0, 8, 8, 32, 1, Style::half}};

// The inputs of store_latent_kv(), and cleared pages for its output: tokens 5, 6, ... of a sequence
// on pages in falling order. Q: element type of the queries; stored: that of the pages.
template <class Q>
struct LatentKvFixture {
  LatentKvFixture(const LatentKvCase& which, DType stored, float size = 2)
      : c(which), head_dim(c.nope_dim + c.rope_dim), padded(round_up(head_dim, kBlockK)) {
    std::mt19937 random(c.rows);
    q = cases::random_row(int64_t{c.rows} * c.num_heads * head_dim, 2, random);
    latent = cases::random_row(int64_t{c.rows} * gap_stride(), size, random);
    kv_norm = cases::random_row(c.kv_rank, 1, random);
    cos = cases::random_row(c.rows * c.rope_dim / 2, 1, random);
    sin = cases::random_row(c.rows * c.rope_dim / 2, 1, random);
    kv.shape = {.kind = KvShape::Kind::latent,
                .dtype = stored,
                .num_heads = 1,
                .key_dim = c.kv_rank + c.rope_dim,
                .value_dim = c.kv_rank,
                .page_tokens = c.page_tokens};
    const int num_pages = (c.rows + 5) / c.page_tokens + 1;
    for (int r = 0; r < c.rows; ++r)
      slots.push_back({PageId{num_pages - 1 - (r + 5) / c.page_tokens}, (r + 5) % c.page_tokens});
    pages.resize(num_pages * kv.shape.page_bytes());
    q_out.resize(c.rows * c.num_heads * padded);
  }

  // The latent's rows are columns of a wider product, so they are further apart than they are long.
  int64_t gap_stride() const { return c.kv_rank + c.rope_dim + 7; }

  void run(Backend& backend) {
    std::ranges::fill(pages, std::byte{});
    std::ranges::fill(q_out, from_float<Q>(3));
    kv.data = pages.data();
    const int64_t half = c.rope_dim / 2;
    store_latent_kv(
        backend,
        {.q = View<const float>(q.data(), c.rows, c.num_heads * head_dim),
         .latent = View<const float>(latent.data(), c.rows, c.kv_rank + c.rope_dim, gap_stride()),
         .num_heads = c.num_heads,
         .nope_dim = c.nope_dim,
         .kv_norm = kv_norm,
         .norm_eps = 1e-6f,
         .style = c.style,
         .cos = View<const float>(cos.data(), c.rows, half),
         .sin = View<const float>(sin.data(), c.rows, half),
         .slots = slots,
         .q_out = MatrixView::of(View<Q>(q_out.data(), c.rows, c.num_heads * padded)),
         .kv = kv});
  }

  // Returns element i of x rotated at a row's position, by the contract in doubles.
  double rotated(int row, const float* x, int i) const {
    const int half = c.rope_dim / 2;
    const bool neighbours = c.style == Style::interleaved;
    const int pair = neighbours ? i / 2 : i % half;
    const bool first = neighbours ? i % 2 == 0 : i < half;
    const double a = x[neighbours ? 2 * pair : pair];
    const double b = x[neighbours ? 2 * pair + 1 : pair + half];
    const double co = cos[row * half + pair], si = sin[row * half + pair];
    return first ? a * co - b * si : b * co + a * si;
  }
  std::vector<double> normed(int row) const {
    const float* x = &latent[row * gap_stride()];
    double squares = 0;
    for (int i = 0; i < c.kv_rank; ++i) squares += double{x[i]} * x[i];
    const double inv = 1 / std::sqrt(squares / c.kv_rank + 1e-6);
    std::vector<double> y;
    for (int i = 0; i < c.kv_rank; ++i) y.push_back(x[i] * inv * kv_norm[i]);
    return y;
  }
  std::vector<double> key_part(int row) const {
    std::vector<double> y;
    for (int i = 0; i < c.rope_dim; ++i)
      y.push_back(rotated(row, &latent[row * gap_stride() + c.kv_rank], i));
    return y;
  }

  LatentKvCase c;
  int head_dim;
  int64_t padded;
  std::vector<float> q, latent, kv_norm, cos, sin;
  std::vector<KvSlot> slots;
  KvLayer kv;
  std::vector<std::byte> pages;
  std::vector<Q> q_out;
};

// Returns half a unit in the last place of T at the largest number, plus the error of fp32.
template <class T>
double tolerance(double largest) {
  return largest * (sizeof(T) == 2 ? 0x1p-8 : 4e-6);
}

template <class Q>
void expect_queries(const LatentKvFixture<Q>& f) {
  for (int r = 0; r < f.c.rows; ++r) {
    for (int h = 0; h < f.c.num_heads; ++h) {
      const float* x = &f.q[(int64_t{r} * f.c.num_heads + h) * f.head_dim];
      const Q* y = &f.q_out[(r * f.c.num_heads + h) * f.padded];
      for (int i = 0; i < f.c.nope_dim; ++i) ASSERT_EQ(y[i], from_float<Q>(x[i]));
      for (int i = 0; i < f.c.rope_dim; ++i) {
        const double want = f.rotated(r, x + f.c.nope_dim, i);
        ASSERT_NEAR(to_float(y[f.c.nope_dim + i]), want, tolerance<Q>(std::abs(want)) + 4e-6);
      }
      for (int64_t i = f.head_dim; i < f.padded; ++i) ASSERT_EQ(to_float(y[i]), 0);
    }
  }
}

// Expects the stored numbers of one part of a row to match the contract; `scale` is 0 unless int8.
template <class T>
void expect_part(const T* got, const std::vector<double>& want, float scale, int64_t padded) {
  double largest = 0;
  for (double v : want) largest = std::max(largest, std::abs(v));
  if (sizeof(T) == 1) {
    ASSERT_NEAR(scale, largest / 127, 1e-5 * largest);
  }
  const auto n = static_cast<int64_t>(want.size());
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 1) {
      ASSERT_NEAR(got[i] * double{scale}, want[i], 0.501 * scale) << i;
    } else {
      ASSERT_NEAR(to_float(got[i]), want[i], tolerance<T>(std::abs(want[i])) + 4e-6) << i;
    }
  }
  for (int64_t i = n; i < padded; ++i) ASSERT_EQ(got[i], T{});
}

// Expects every stored row to be right, and nothing else to be written.
template <class T, class Q>
void expect_rows(const LatentKvFixture<Q>& f) {
  const KvShape& shape = f.kv.shape;
  std::vector<std::byte> others = f.pages;
  const KvLayer cleared = {shape, others.data()};
  for (int r = 0; r < f.c.rows; ++r) {
    const auto [page, offset] = f.slots[r];
    const T* row = f.kv.template latent<T>(page, offset);
    float scales[2] = {};
    if (shape.dtype == DType::int8) {
      std::memcpy(scales, f.kv.scales(page, 0) + 2 * offset, sizeof scales);
      std::fill_n(cleared.scales(page, 0) + 2 * offset, 2, 0.0f);
    }
    expect_part(row, f.normed(r), scales[0], shape.rope_offset());
    expect_part(row + shape.rope_offset(), f.key_part(r), scales[1],
                shape.row_elements() - shape.rope_offset());
    std::fill_n(cleared.template latent<T>(page, offset), shape.row_elements(), T{});
  }
  for (std::byte b : others) ASSERT_EQ(b, std::byte{});
}

template <class T, class Q>
void expect_latent(const LatentKvCase& c) {
  constexpr DType kStored = sizeof(T) == 1 ? DType::int8 : dtype_of<Q>;
  LatentKvFixture<Q> f(c, kStored);
  cases::SameBits<Q> same_queries;
  cases::SameBits<std::byte> same_pages;
  cases::on_every_backend([&](Backend& backend) {
    f.run(backend);
    ASSERT_TRUE(same_queries(f.q_out)) << isa_name(backend.isa());
    ASSERT_TRUE(same_pages(f.pages)) << isa_name(backend.isa());
    if (backend.isa() != Isa::ref) return;
    expect_queries(f);
    expect_rows<T>(f);
  });
}

TEST(LatentKvTest, QueriesAndRowsAreThoseOfTheContract) {
  for (const LatentKvCase& c : kLatentKvCases) {
    expect_latent<Bf16, Bf16>(c);
    expect_latent<float, float>(c);
  }
}

TEST(LatentKvTest, RowsAsInt8HaveAScaleForEachPart) {
  for (const LatentKvCase& c : kLatentKvCases) {
    expect_latent<int8_t, Bf16>(c);
    expect_latent<int8_t, float>(c);
  }
}

TEST(LatentKvTest, ALatentOfZerosIsStoredAsZeros) {
  LatentKvFixture<Bf16> f(kLatentKvCases[1], DType::int8, 0);
  cases::on_every_backend([&](Backend& backend) {
    f.run(backend);
    for (std::byte b : f.pages) ASSERT_EQ(b, std::byte{});
  });
}

TEST(LatentKvTest, NotANumberSpoilsItsOwnRowOnly) {
  LatentKvFixture<Bf16> f(kLatentKvCases[1], DType::int8);
  f.latent[20 * f.gap_stride() + 3] = std::nanf("");
  cases::on_every_backend([&](Backend& backend) {
    f.run(backend);
    for (int r = 0; r < f.c.rows; ++r) {
      const float* scales = f.kv.scales(f.slots[r].page, 0) + 2 * f.slots[r].offset;
      ASSERT_EQ(std::isnan(scales[0]), r == 20);
      ASSERT_FALSE(std::isnan(scales[1]));
    }
  });
}

}  // namespace
}  // namespace hocket
