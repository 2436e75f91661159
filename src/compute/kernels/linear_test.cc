#include "compute/kernels/linear.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compute/kernels/cases/linear_cases.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/product_kernels.h"

namespace hocket {
namespace {

using cases::LinearCase;
using cases::Values;

constexpr int kGap = 5;  // columns of y right of the result, not to be touched

// The whole product at once by ref, then one addition where asked.
template <class T>
std::vector<float> expected_linear(View<const T> x, const PackedWeight& w,
                                   const std::vector<float>& start, Store store) {
  const int columns = w.panels() * kPanelN;
  std::vector<float> product(x.rows * columns), y = start;
  product_kernels(Isa::ref).run<T>({x.data, x.stride, static_cast<int>(x.rows), w.panel_as<T>(0),
                                    int64_t{w.k_blocks()} * kTileElements, w.panels(), w.k_blocks(),
                                    product.data(), columns, false, nullptr});
  for (int64_t row = 0; row < x.rows; ++row)
    for (int n = 0; n < w.n; ++n) {
      float& to = y[row * (w.n + kGap) + n];
      to = (store == Store::add ? to : 0.0f) + product[row * columns + n];
    }
  return y;
}

template <class T>
void expect_linear(const LinearCase& c, Store store, uint32_t seed) {
  std::mt19937 random(seed);
  const auto w = cases::packed_matrix<T>(c.n, c.k, Values::normal, random);
  const auto x = cases::padded_rows<T>(c.rows, c.k, 16, Values::normal, random);
  std::vector<float> start(c.rows * (c.n + kGap) + 1);
  cases::fill<float>(Values::normal, random, start);
  const std::vector<float> expected = expected_linear<T>(x.view, w.weight, start, store);
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (Isa isa : isas) {
    for (int num_workers : {1, 2, 3}) {
      WorkerPool workers({num_workers, {}, 1000});
      ScratchNeed need;
      need.max_rows = c.rows;
      need.max_k = c.k;
      need.num_heads = 1;
      need.kv = {.num_heads = 1, .key_dim = 32, .value_dim = 32};
      Backend backend = *Backend::create(isa, workers, scratch_bytes_for(need));
      std::vector<float> y = start;
      linear(backend, MatrixView::of(x.view), w.weight,
             View<float>(y.data(), c.rows, c.n, c.n + kGap), store);
      ASSERT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
          << isa_name(isa) << " rows " << c.rows << " k " << c.k << " n " << c.n << " workers "
          << num_workers << " add " << (store == Store::add);
    }
  }
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
    for (Store store : {Store::overwrite, Store::add}) {
      expect_linear<Bf16>(c, store, seed++);
      expect_linear<float>(c, store, seed++);
    }
  }
}

TEST(Choose, TasksCoverEverythingAndStayWithinLimits) {
  for (int panels : {1, 2, 5, 64, 128, 4000})
    for (int k_blocks : {1, 16, 64, 512})
      for (int rows : {1, 8, 9, 512})
        for (int num_workers : {1, 2, 16}) {
          const int width = panels_per_task(panels, k_blocks * 1024, rows, num_workers);
          EXPECT_EQ(width % 2, 0);
          EXPECT_GE(width, 2);
          EXPECT_LE(width, kMaxTaskPanels);
          const int tasks = (panels + width - 1) / width;
          const int height = rows_per_task(tasks, rows, num_workers);
          EXPECT_GE(height, 1);
          // Weights that several row blocks pass over fit into half a MiB of cache.
          if (rows > 8 && k_blocks <= 128) {
            EXPECT_LE(width * k_blocks, 512);
          }
          // Many rows keep every worker busy, however few the panels.
          if (rows == 512 && num_workers == 2) {
            EXPECT_GE(tasks * ((rows + height - 1) / height), num_workers);
          }
        }
}

}  // namespace
}  // namespace hocket
