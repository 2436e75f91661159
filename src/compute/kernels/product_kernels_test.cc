#include "compute/kernels/product_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

#include "base/source_dir_testing.h"
#include "base/worker_pool.h"
#include "compute/kernels/cases/linear_cases.h"

namespace hocket {
namespace {

using cases::LinearCase;
using cases::Values;

// Runs one shape on every level and compares all of y, including the gaps between rows.
template <class T>
void expect_same_bits(const LinearCase& c, Values kind, bool accumulate, uint32_t seed) {
  std::mt19937 random(seed);
  const auto w = cases::packed_matrix<T>(c.n, c.k, kind, random);
  const int gap = static_cast<int>(random() % 3) * 8;
  const auto x = cases::padded_rows<T>(c.rows, c.k, gap, kind, random);
  Product<T> p;
  p.x = x.view.data;
  p.x_stride = x.view.stride;
  p.rows = c.rows;
  p.w = w.weight.template panel_as<T>(0);
  p.panel_stride = int64_t{w.weight.k_blocks()} * kTileElements;
  p.panels = w.weight.panels();
  p.k_blocks = w.weight.k_blocks();
  p.y_stride = p.panels * kPanelN + gap;
  p.accumulate = accumulate;
  std::vector<float> start(c.rows * p.y_stride + 1);
  cases::fill<float>(kind, random, start);
  const auto run = [&](Isa isa) {
    const Buffer scratch = *Buffer::allocate(product_scratch_bytes(p.rows, p.k_blocks));
    std::vector<float> y = start;
    p.y = y.data();
    p.scratch = scratch.data();
    product_kernels(isa).run(p);
    return y;
  };
  const std::vector<float> expected = run(Isa::ref);
  for (Isa isa : cases::vector_isas()) {
    const std::vector<float> got = run(isa);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << isa_name(isa) << " rows " << c.rows << " k " << c.k << " n " << c.n << " values "
        << static_cast<int>(kind) << " accumulate " << accumulate << " seed " << seed;
  }
}

class ProductTest : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }
};

TEST_F(ProductTest, EveryBodyGivesTheBitsOfRef) {
  uint32_t seed = 0;
  for (const LinearCase& c : cases::linear_cases()) {
    const Values kind = cases::kAllValues[seed % std::size(cases::kAllValues)];
    expect_same_bits<Bf16>(c, kind, seed % 2 == 0, seed);
    expect_same_bits<float>(c, kind, seed % 2 == 1, seed);
    ++seed;
  }
}

TEST_F(ProductTest, EveryKindOfNumberGivesTheSameBits) {
  for (Values kind : cases::kAllValues)
    for (bool accumulate : {false, true})
      for (const LinearCase& c :
           {LinearCase{1, 2048, 80}, {4, 512, 48}, {8, 300, 48}, {35, 640, 48}}) {
        expect_same_bits<Bf16>(c, kind, accumulate, 7);
        expect_same_bits<float>(c, kind, accumulate, 7);
      }
}

TEST_F(ProductTest, RandomShapesGiveTheSameBits) {
  std::mt19937 random(20240611);
  for (int i = 0; i < 120; ++i) {
    const LinearCase c{static_cast<int>(random() % 70), 1 + static_cast<int>(random() % 700),
                       1 + static_cast<int>(random() % 150)};
    const Values kind = cases::kAllValues[random() % std::size(cases::kAllValues)];
    expect_same_bits<Bf16>(c, kind, random() % 2 == 0, random());
    expect_same_bits<float>(c, kind, random() % 2 == 0, random());
  }
}

// The definition, written independently of ref: k-blocks of 32, even and odd sums, one addition.
TEST_F(ProductTest, RefIsTheDefinition) {
  std::mt19937 random(5);
  const auto w = cases::packed_matrix<float>(20, 70, Values::normal, random);
  const auto x = cases::padded_rows<float>(3, 70, 0, Values::normal, random);
  std::vector<float> y(3 * 32);
  product_kernels(Isa::ref).f32({x.view.data, x.view.stride, 3, w.weight.panel_as<float>(0),
                                 int64_t{3} * kTileElements, 2, 3, y.data(), 32, false, nullptr});
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 20; ++column) {
      float c = 0;
      for (int begin = 0; begin < 70; begin += 32) {
        float sums[2] = {0, 0};
        for (int k = begin; k < std::min(begin + 32, 70); ++k)
          sums[k % 2] = std::fma(x.view.row(row)[k], w.rows[column * 70 + k], sums[k % 2]);
        c += sums[0] + sums[1];
      }
      EXPECT_EQ(y[row * 32 + column], c) << row << ", " << column;
    }
  }
}

TEST_F(ProductTest, PackedElementsStandWhereTheContractSays) {
  std::mt19937 random(6);
  const auto w = cases::packed_matrix<Bf16>(37, 45, Values::normal, random);
  const Bf16* packed = w.weight.panel_as<Bf16>(0);
  int64_t nonzero = 0;
  for (int64_t i = 0; i < w.weight.bytes() / 2; ++i) nonzero += packed[i].bits != 0;
  int64_t expected_nonzero = 0;
  for (int n = 0; n < 37; ++n)
    for (int k = 0; k < 45; ++k) {
      EXPECT_EQ(packed[packed_offset(n, k, 2)], w.rows[n * 45 + k]);
      expected_nonzero += w.rows[n * 45 + k].bits != 0;
    }
  EXPECT_EQ(nonzero, expected_nonzero);
}

TEST_F(ProductTest, PackingInPiecesIsPackingAtOnce) {
  std::mt19937 random(8);
  const auto w = cases::packed_matrix<Bf16>(50, 70, Values::normal, random);
  const Buffer pieces = *Buffer::allocate(w.weight.bytes());
  const int cuts[] = {0, 5, 16, 17, 40, 50};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i)
    pack_rows<Bf16>(View<const Bf16>(w.rows.data() + cuts[i] * 70, cuts[i + 1] - cuts[i], 70),
                    cuts[i], reinterpret_cast<Bf16*>(pieces.data()));
  EXPECT_EQ(std::memcmp(pieces.data(), w.weight.data, w.weight.bytes()), 0);
}

// Reads just enough of the safetensors format for the recorded products.
class Recording {
 public:
  explicit Recording(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t length = 0;
    if (bytes_.size() < sizeof length) return;
    std::memcpy(&length, bytes_.data(), sizeof length);
    header_ = std::string(bytes_.data() + sizeof length, length);
    data_ = bytes_.data() + sizeof length + length;
  }

  // Returns the numbers of a tensor; sets `rows` and `cols` to its shape.
  template <class T>
  const T* tensor(const std::string& name, int& rows, int& cols) const {
    const std::regex entry("\"" + name +
                           "\":\\{[^}]*\"shape\":\\[(\\d+),\\s*(\\d+)\\][^}]*"
                           "\"data_offsets\":\\[(\\d+),");
    std::smatch found;
    if (!std::regex_search(header_, found, entry)) return nullptr;
    rows = std::stoi(found[1]);
    cols = std::stoi(found[2]);
    return reinterpret_cast<const T*>(data_ + std::stoll(found[3]));
  }

 private:
  std::vector<char> bytes_;
  std::string header_;
  const char* data_ = nullptr;
};

TEST_F(ProductTest, EveryBodyGivesTheBitsOfTheTileHardware) {
  const Recording recording(source_dir() / "tests/golden/arithmetic/amx_bf16.safetensors");
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (const std::string name :
       {"normal", "normal_long", "small", "subnormal", "heavy_tails", "cancelling"}) {
    int rows = 0, cols = 0, k = 0;
    const Bf16* a = recording.tensor<Bf16>(name + ".a_bf16", rows, k);
    ASSERT_TRUE(a != nullptr) << name;
    const Bf16* b = recording.tensor<Bf16>(name + ".b_bf16", k, cols);
    const float* c = recording.tensor<float>(name + ".c", rows, cols);
    ASSERT_EQ(rows, 16);
    ASSERT_EQ(cols, 16);
    std::vector<Bf16> columns(16 * k);
    for (int n = 0; n < 16; ++n)
      for (int i = 0; i < k; ++i) columns[n * k + i] = b[i * 16 + n];
    std::vector<Bf16> packed(16 * k);
    pack_rows<Bf16>(View<const Bf16>(columns.data(), 16, k), 0, packed.data());
    const int k_blocks = k / kBlockK;
    const Buffer scratch = *Buffer::allocate(product_scratch_bytes(16, k_blocks));
    for (Isa isa : isas) {
      // All rows at once, and one by one as in a decode step.
      for (int step : {16, 1}) {
        std::vector<float> y(256);
        for (int row = 0; row < 16; row += step)
          product_kernels(isa).bf16({a + row * k, k, step, packed.data(), 0, 1, k_blocks,
                                     y.data() + row * 16, 16, false, scratch.data()});
        EXPECT_EQ(std::memcmp(y.data(), c, 1024), 0) << name << " on " << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace hocket
