#include "compute/kernels/linear.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compute/kernels/cases/plain_products.h"
#include "compute/kernels/choose.h"

namespace hocket {
namespace {

using cases::LinearCase;
using cases::Values;

constexpr int kGap = 5;  // columns of y after the result, which must stay untouched

// Compares every body, with several numbers of workers, with the plain product, bias and addition.
void expect_linear(MatrixView x, const PackedWeight& w, StoreMode store, std::mt19937& random) {
  const int rows = static_cast<int>(x.rows);
  std::vector<float> start(rows * (w.n + kGap) + 1);
  cases::fill<float>(Values::normal, random, start);
  std::vector<float> expected = start;
  const std::vector<float> product = cases::plain_product(x, w);
  for (int row = 0; row < rows; ++row)
    for (int n = 0; n < w.n; ++n) {
      float& to = expected[row * (w.n + kGap) + n];
      to = (store == StoreMode::add ? to : 0.0f) + product[row * w.n + n];
    }
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (Isa isa : isas) {
    for (int num_workers : {1, 2, 3}) {
      WorkerPool workers({num_workers, {}, 1000});
      ScratchNeed need;
      need.max_rows = rows;
      need.max_k = w.k;
      need.num_heads = 1;
      need.kv = {.num_heads = 1, .key_dim = 32, .value_dim = 32};
      need.dtype = x.dtype;
      Backend backend = *Backend::create(isa, workers, scratch_bytes_for(need));
      std::vector<float> y = start;
      linear(backend, x, w, View<float>(y.data(), rows, w.n, w.n + kGap), store);
      ASSERT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
          << isa_name(isa) << " " << weight_format_name(w.format) << " group " << w.group
          << " rows " << rows << " k " << w.k << " n " << w.n << " workers " << num_workers
          << " add " << (store == StoreMode::add) << " bias " << (w.bias != nullptr);
    }
  }
}

template <class T>
void expect_linear(const LinearCase& c, StoreMode store, uint32_t seed) {
  std::mt19937 random(seed);
  auto w = cases::packed_matrix<T>(c.n, c.k, Values::normal, random);
  const auto x = cases::padded_rows<T>(c.rows, c.k, 16, Values::normal, random);
  std::vector<float> bias(c.n);
  cases::fill<float>(Values::normal, random, bias);
  if (seed % 3 == 0) w.weight.bias = bias.data();
  expect_linear(MatrixView::of(x.view), w.weight, store, random);
}

TEST(Linear, SameBitsForEveryBodyAndNumberOfWorkers) {
  flush_denormals();
  uint32_t seed = 1;
  for (const LinearCase& c : {LinearCase{0, 64, 64},
                              {1, 64, 16},
                              {1, 2048, 700},
                              {3, 100, 333},
                              {8, 256, 1024},
                              {9, 256, 528},
                              {40, 96, 40},
                              {130, 64, 32},
                              {300, 33, 650}}) {
    for (StoreMode store : {StoreMode::overwrite, StoreMode::add}) {
      expect_linear<Bf16>(c, store, seed++);
      expect_linear<float>(c, store, seed++);
    }
  }
}

TEST(Linear, SameBitsInEveryWeightFormat) {
  flush_denormals();
  uint32_t seed = 1;
  for (const LinearCase& c : {LinearCase{0, 64, 64},
                              {1, 700, 333},
                              {4, 100, 48},
                              {9, 256, 528},
                              {140, 96, 40},
                              {400, 160, 72},
                              {140, 8200, 24},    // more rows than the scratch of one worker holds
                              {400, 8200, 8}}) {  // more than the scratch of three
    for (WeightFormat format : {WeightFormat::fp8, WeightFormat::int8, WeightFormat::int4,
                                WeightFormat::mxfp4, WeightFormat::mxfp8, WeightFormat::nvfp4,
                                WeightFormat::q4_k, WeightFormat::iq1, WeightFormat::q6_k})
      for (int group : {16, 32, 128, 0}) {
        if (format == WeightFormat::fp8 && group != kFp8Group) continue;
        if (has_block_scales(format) && group != kGgufGroup) continue;
        if (is_mx(format) ? group != cases::mx_group(format) : group == kNvfp4Group) continue;
        std::mt19937 random(++seed);
        cases::ScaledMatrix w = cases::scaled_matrix({format, group, c.rows, c.k, c.n}, random);
        const auto x = cases::padded_rows<Bf16>(c.rows, c.k, 16, Values::normal, random);
        if (seed % 2 == 0) w.weight.bias = w.bias.data();
        if (format == WeightFormat::nvfp4) w.weight.column_scales = w.column_scales.data();
        const StoreMode store = seed % 3 == 0 ? StoreMode::add : StoreMode::overwrite;
        expect_linear(MatrixView::of(x.view), w.weight, store, random);
        if (testing::Test::HasFatalFailure()) return;
      }
  }
}

TEST(Choose, TasksCoverEverythingAndStayWithinLimits) {
  for (int panels : {1, 2, 5, 64, 128, 4000})
    for (int k_blocks : {1, 16, 64, 512})
      for (int rows : {1, 8, 9, 512})
        for (int num_workers : {1, 2, 16}) {
          const int width = panels_per_task({panels, k_blocks * 1024, rows, num_workers});
          EXPECT_EQ(width % 2, 0);
          EXPECT_GE(width, 2);
          EXPECT_LE(width, kMaxTaskPanels);
          const int tasks = (panels + width - 1) / width;
          const int height = rows_per_task(tasks, rows, num_workers);
          EXPECT_GE(height, 1);
          // Weights that several blocks of rows use fit into 1 MiB of cache.
          if (rows > 8 && k_blocks <= 128) {
            EXPECT_LE(width * k_blocks, 1024);
          }
          // Many rows keep every worker busy, even with few panels.
          if (rows == 512 && num_workers == 2) {
            EXPECT_GE(tasks * ((rows + height - 1) / height), num_workers);
          }
        }
}

}  // namespace
}  // namespace hocket
