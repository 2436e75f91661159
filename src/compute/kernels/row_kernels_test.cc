#include "compute/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>

#include "base/worker_pool.h"
#include "compute/kernels/arithmetic/math.h"
#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_stats.h"

namespace hocket {
namespace {

using Style = RopeConfig::Style;
template <class T>
using Row = std::vector<T>;

class RowKernelsTest : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }

  std::vector<float> row(int64_t n, float size = 1) { return cases::random_row(n, size, random_); }

  // Returns a random row; if `step` is odd, one of five numbers is special.
  std::vector<float> row_or_specials(int64_t n, int step) {
    std::vector<float> x = row(n, 3);
    if (step % 2 == 1) cases::insert_special_values(x, random_);
    return x;
  }

  std::mt19937 random_{7};
};

template <class T>
bool same_bits_or_nan(std::vector<T> a, std::vector<T> b) {
  const auto plain_nan = [](std::vector<T>& v) {
    if constexpr (!std::is_same_v<T, int32_t>) {
      for (T& x : v)
        if (std::isnan(to_float(x))) x = from_float<T>(std::numeric_limits<float>::quiet_NaN());
    }
  };
  plain_nan(a);
  plain_nan(b);
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Runs `body` on every level. Each must give the bits of ref and write nothing after the row.
template <class T>
void expect_same(int64_t n, const std::function<void(const RowKernels&, T*)>& body) {
  const std::vector<T> untouched(n + 16, from_float<T>(-7));
  std::vector<T> expected = untouched;
  body(row_kernels(Isa::ref), expected.data());
  for (Isa isa : cases::vector_isas()) {
    std::vector<T> got = untouched;
    body(row_kernels(isa), got.data());
    ASSERT_TRUE(same_bits_or_nan(got, expected)) << isa_name(isa) << " n " << n;
  }
}

TEST_F(RowKernelsTest, TheTablesBelongToTheirLevels) {
  EXPECT_EQ(row_kernels(Isa::ref).isa, Isa::ref);
  EXPECT_EQ(row_kernels(Isa::avx2).isa, Isa::avx2);
  EXPECT_EQ(row_kernels(Isa::avx512).isa, Isa::avx512);
  EXPECT_EQ(row_kernels(Isa::avx512_bf16).isa, Isa::avx512);
  EXPECT_EQ(row_kernels(Isa::amx).isa, Isa::avx512);
  EXPECT_EQ(row_kernels(Isa::amx_emulated).isa, Isa::avx512);
}

TEST_F(RowKernelsTest, NormSwigluRoundDivideScaleAndExp) {
  for (int n : cases::kRowLengths) {
    for (int step = 0; step < 4; ++step) {
      const auto a = row_or_specials(n, step), b = row_or_specials(n, step / 2);
      const auto both = [&](auto t) {
        using T = decltype(t);
        expect_same<T>(n, [&](const RowKernels& k, T* y) {
          k.of<T>().rms_norm(a.data(), b.data(), n, 1e-6f, y);
        });
        expect_same<T>(
            n, [&](const RowKernels& k, T* y) { k.of<T>().swiglu(a.data(), b.data(), n, y); });
        using enum Activation::Kind;
        for (const auto kind : {silu, limited_silu, limited_gate, gelu_tanh})
          expect_same<T>(n, [&](const RowKernels& k, T* y) {
            k.of<T>().glu({a.data(), b.data(), n, {kind, 0.7f}, y});
          });
        expect_same<T>(n, [&](const RowKernels& k, T* y) {
          k.of<T>().round(a.data(), n, y);
          k.of<T>().multiply(y, 0.3f, n, y);
        });
        expect_same<T>(n, [&](const RowKernels& k, T* y) { k.of<T>().round(a.data(), n, y); });
        expect_same<T>(n,
                       [&](const RowKernels& k, T* y) { k.of<T>().divide(a.data(), 1.7f, n, y); });
      };
      both(Bf16{});
      both(float{});
      expect_same<float>(n, [&](const RowKernels& k, float* y) {
        std::copy(a.begin(), a.end(), y);
        k.scale(0.3f, n, y);
      });
      expect_same<float>(n,
                         [&](const RowKernels& k, float* y) { k.exp_row(a.data(), n, 1.25f, y); });
    }
  }
}

TEST_F(RowKernelsTest, ActivationsAreTheirFormulas) {
  const std::vector<float> gate = {-9, -1.5f, -0.25f, 0, 0.5f, 1.5f, 9, 1};
  const std::vector<float> up = {-3, 3, 0.5f, 1, -0.5f, -2, 2, std::nanf("")};
  const auto n = std::ssize(gate);
  std::vector<float> y(n);
  const auto expect = [&](Activation activation, auto&& formula) {
    for (Isa isa : kAllIsas) {
      if (!runs_here(isa)) continue;
      row_kernels(isa).f32.glu({gate.data(), up.data(), n, activation, y.data()});
      for (int i = 0; i + 1 < n; ++i)
        EXPECT_NEAR(y[i], formula(double{gate[i]}, double{up[i]}), 1e-5) << isa_name(isa) << i;
      EXPECT_TRUE(std::isnan(y[n - 1]));
    }
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect({}, [&](double g, double u) { return g * sigmoid(g) * u; });
  expect({Activation::Kind::gelu_tanh}, [](double g, double u) {
    return 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g))) *
           u;
  });
  expect({Activation::Kind::limited_silu, 1.25f}, [&](double g, double u) {
    return std::min(g * sigmoid(g), 1.25) * std::clamp(u, -1.25, 1.25);
  });
  expect({Activation::Kind::limited_gate, 1.25f}, [&](double g, double u) {
    const double s = std::min(g, 1.25);
    return (std::clamp(u, -1.25, 1.25) + 1) * s * sigmoid(1.702 * s);
  });
}

TEST_F(RowKernelsTest, NormIsTheFormula) {
  for (int n : cases::kRowLengths) {
    const auto x = row(n), w = row(n);
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    std::vector<float> y(n);
    row_kernels(Isa::ref).f32.rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
    for (int i = 0; i < n; ++i)
      ASSERT_NEAR(y[i], x[i] * w[i] / std::sqrt(squares / n + 1e-5), 1e-6 * std::abs(y[i]) + 1e-9);
  }
}

TEST_F(RowKernelsTest, RoundsToNearestEvenAsBf16Does) {
  std::vector<float> x;
  for (uint32_t high : {0u, 0x3f80u, 0x3f81u, 0xbf80u, 0x7f7fu, 0x0080u, 0x7f80u, 0xff80u})
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      if (high < 0x7f80u || low == 0) x.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<Bf16> expected;
  for (float v : x) expected.push_back(to_bf16(v));
  for (Isa isa : cases::vector_isas()) {
    std::vector<Bf16> got(x.size());
    row_kernels(isa).bf16.round(x.data(), static_cast<int64_t>(x.size()), got.data());
    EXPECT_EQ(got, expected) << isa_name(isa);
  }
}

TEST_F(RowKernelsTest, NotANumberStaysOne) {
  const std::vector<float> x = {std::bit_cast<float>(0x7fffffffu),
                                std::bit_cast<float>(0xffffffffu),
                                std::bit_cast<float>(0x7f800001u)};
  for (Isa isa : cases::vector_isas()) {
    Bf16 y[3];
    row_kernels(isa).bf16.round(x.data(), 3, y);
    for (Bf16 v : y) EXPECT_TRUE(std::isnan(to_float(v))) << isa_name(isa);
  }
}

TEST_F(RowKernelsTest, HeadsAreNormedAndRotated) {
  struct Case {
    int dim, rotary_dim;
  };
  for (const auto& [dim, rotary_dim] : {Case{16, 16},
                                        {32, 32},
                                        {64, 64},
                                        {128, 128},
                                        {80, 80},
                                        {64, 16},
                                        {24, 8},
                                        {34, 22},
                                        {33, 2},
                                        {192, 64},
                                        {64, 0}}) {
    for (int kind = 0; kind < 4; ++kind) {
      const auto x = row(dim), w = row(dim), cos = row(rotary_dim / 2), sin = row(rotary_dim / 2);
      const auto both = [&](auto t) {
        using T = decltype(t);
        expect_same<T>(dim, [&](const RowKernels& k, T* y) {
          k.of<T>().head({.x = x.data(),
                          .dim = dim,
                          .norm = kind % 2 == 1 ? w.data() : nullptr,
                          .eps = 1e-6f,
                          .cos = cos.data(),
                          .sin = sin.data(),
                          .rotary_dim = rotary_dim,
                          .style = kind < 2 ? Style::half : Style::interleaved,
                          .y = y});
        });
      };
      both(Bf16{});
      both(float{});
    }
  }
}

TEST_F(RowKernelsTest, RotationTurnsPairs) {
  const float x[] = {1, 2, 3, 4}, cos[] = {0, 1}, sin[] = {1, 0};
  float y[4];
  row_kernels(Isa::ref).f32.head(
      {.x = x, .dim = 4, .cos = cos, .sin = sin, .rotary_dim = 4, .y = y});
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{-3, 2, 1, 4}));
  row_kernels(Isa::ref).f32.head({.x = x,
                                  .dim = 4,
                                  .cos = cos,
                                  .sin = sin,
                                  .rotary_dim = 4,
                                  .style = Style::interleaved,
                                  .y = y});
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{-2, 1, 3, 4}));
}

TEST_F(RowKernelsTest, SoftmaxBlocks) {
  for (int visible = 1; visible <= 128; ++visible) {
    for (float m : {-math::kInfinity, 0.5f, 30.0f}) {
      const auto scores = row(128, visible % 3 == 0 ? 30 : 3);
      const auto both = [&](auto t) {
        using T = decltype(t);
        // The state and alpha are stored after p.
        expect_same<T>(128, [&](const RowKernels& k, T* p) {
          float max = m, l = 1.5f;
          const float alpha = k.of<T>().softmax({.scores = scores.data(),
                                                 .visible = visible,
                                                 .scale = 0.125f,
                                                 .m = &max,
                                                 .l = &l,
                                                 .p = p});
          const float state[] = {alpha, max, l};
          std::memcpy(p + 128, state, sizeof state);
          for (int j = visible; j % 32 != 0; ++j) ASSERT_EQ(to_float(p[j]), 0.0f);
        });
      };
      both(Bf16{});
      both(float{});
    }
  }
}

TEST_F(RowKernelsTest, SegmentsMerge) {
  for (int dim : {16, 32, 80, 128}) {
    for (float m_next : {-3.0f, 0.25f, 4.0f}) {
      const auto before = row(dim), next = row(dim);
      expect_same<float>(dim, [&](const RowKernels& k, float* y) {
        std::copy(before.begin(), before.end(), y);
        float m = 0.25f, l = 3;
        k.merge({.m = &m,
                 .l = &l,
                 .o = y,
                 .m_next = m_next,
                 .l_next = 2,
                 .o_next = next.data(),
                 .dim = dim});
        y[dim] = m;
        y[dim + 1] = l;
      });
    }
  }
}

TEST_F(RowKernelsTest, CombineAddsTreesOfSlots) {
  for (int cols : cases::kRowLengths) {
    const auto both = [&](auto t) {
      using T = decltype(t);
      std::vector<std::vector<T>> rows(6, std::vector<T>(cols));
      std::vector<const T*> y;
      for (auto& r : rows) {
        std::ranges::transform(row(cols), r.begin(), [](float v) { return from_float<T>(v); });
        y.push_back(r.data());
      }
      auto weights = row(6);
      const auto residual = row(cols), shared = row(cols);
      // Leaves of 2, 1, 2 and 1 slots: the sum of the first two waits for that of the last two.
      const uint8_t ends[] = {0, 1, 2, 0, 1, 3};
      for (const float* added :
           {static_cast<const float*>(nullptr), shared.data(), shared.data()}) {
        expect_same<float>(cols, [&](const RowKernels& k, float* out) {
          std::copy(residual.begin(), residual.end(), out);
          k.of<T>().combine({.y = y.data(),
                             .weights = weights.data(),
                             .ends = ends,
                             .num_slots = 6,
                             .cols = cols,
                             .shared = added,
                             .residual = out});
        });
        // From here on sums are NaN: first by numbers, then in all columns by a weight whose NaN
        // has a lower half that would carry if it were rounded.
        rows[2][cols / 2] = from_float<T>(math::kInfinity);
        rows[4][0] = from_float<T>(std::nanf(""));
        if (added != nullptr) weights[3] = std::bit_cast<float>(0x7fffffffu);
      }
    };
    both(Bf16{});
    both(float{});
  }
}

TEST_F(RowKernelsTest, Angles) {
  for (int n : {4, 8, 16, 20, 32, 64}) {
    for (float position : {0.0f, 1.0f, 4095.0f, 262143.0f}) {
      std::vector<float> inv_freq = row(n);
      for (float& f : inv_freq) f = std::abs(f);
      expect_same<float>(2 * n, [&](const RowKernels& k, float* y) {
        float* const out[2] = {y, y + n};
        k.angles(position, inv_freq.data(), n, 1.14f, out);
      });
    }
  }
}

TEST_F(RowKernelsTest, RowStats) {
  for (int n : {1, 5, 16, 17, 100, 512, 5003}) {
    for (int step = 0; step < 6; ++step) {
      std::vector<float> x = row(n, 10);
      if (step == 1) x[n / 2] = -math::kInfinity;
      if (step == 2) x[random_() % n] = std::nanf("");
      if (step == 3) x[random_() % n] = math::kInfinity;
      if (step == 4) std::ranges::fill(x, -math::kInfinity);
      if (step == 5) x[0] = x[n / 2] = x[n - 1] = *std::ranges::max_element(x);
      expect_same<float>(4, [&](const RowKernels& k, float* y) {
        RowStats stats;
        k.row_stats(x.data(), n, &stats);
        ASSERT_EQ(stats.finite, step == 0 || step == 5 || (step == 1 && n > 1));
        if (!stats.finite) return;
        double sum = 0;
        for (float v : x) sum += std::exp(double{v} - stats.max);
        ASSERT_NEAR(stats.logsumexp, stats.max + std::log(sum), 1e-5);
        ASSERT_EQ(stats.argmax, std::ranges::max_element(x) - x.begin());
        y[0] = stats.max;
        y[1] = stats.logsumexp;
      });
    }
  }
}

// Tests every 509th bit pattern of a float in every body that uses a function of math.h.
TEST_F(RowKernelsTest, FunctionsAgreeInEveryBit) {
  constexpr int kBatch = 1 << 16;
  const std::vector<float> ones(kBatch, 1.0f);
  std::vector<float> x(kBatch);
  const RowKernels& ref = row_kernels(Isa::ref);
  const auto functions = [&](const RowKernels& rows) {
    std::vector<float> y(5 * kBatch);
    std::copy(x.begin(), x.end(), &y[4 * kBatch]);
    rows.soft_cap(0.5f, 30, kBatch, &y[4 * kBatch]);
    float* const angles[2] = {&y[2 * kBatch], &y[3 * kBatch]};
    rows.exp_row(x.data(), kBatch, 0, &y[0]);
    rows.f32.swiglu(x.data(), ones.data(), kBatch, &y[kBatch]);
    rows.angles(1, x.data(), kBatch, 1, angles);
    // All NaNs count as equal, whatever their payload.
    for (float& v : y) v = std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v;
    return y;
  };
  uint64_t bits = 0;
  while (bits <= UINT32_MAX) {
    for (float& v : x)
      v = std::bit_cast<float>(static_cast<uint32_t>(std::exchange(bits, bits + 509)));
    const std::vector<float> expected = functions(ref);
    for (Isa isa : cases::vector_isas()) {
      if (isa > Isa::avx512) continue;  // same row bodies as avx512
      const std::vector<float> got = functions(row_kernels(isa));
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << isa_name(isa) << " near bits " << bits;
    }
  }
}

}  // namespace
}  // namespace hocket
