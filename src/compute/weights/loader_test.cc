#include "compute/weights/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "compute/weights/golden_folder_testing.h"
#include "compute/weights/random_weights.h"
#include "compute/weights/safetensors.h"

namespace hocket {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A source of tensors made here; it counts the bytes that were given back.
class FakeSource final : public WeightSource {
 public:
  template <class T>
  void add(const std::string& name, StoredType type, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    FakeTensor& held = tensors_[name];
    held.bytes.resize(values.size() * sizeof(T) + 1);
    std::memcpy(held.bytes.data() + 1, values.data(),
                values.size() * sizeof(T));  // unaligned, as in files
    held.tensor = {type, std::move(shape), held.bytes.data() + 1,
                   static_cast<int64_t>(values.size() * sizeof(T))};
  }
  bool has(std::string_view name) const override { return tensors_.contains(name); }
  Result<StoredTensor> find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return fail(ErrorCode::missing_tensor, "no tensor {}", name);
    return found->second.tensor;
  }
  std::vector<std::string> names() const override { return {}; }
  void done_with(const StoredTensor& tensor) const override { released_ += tensor.bytes; }
  int64_t released() const { return released_; }

 private:
  struct FakeTensor {
    std::vector<std::byte> bytes;
    StoredTensor tensor;
  };
  std::map<std::string, FakeTensor, std::less<>> tensors_;
  mutable int64_t released_ = 0;
};

// Element (row, col) of a test matrix: exact in bf16, never zero.
float element(int row, int col) {
  return static_cast<float>(1 + (row * 7 + col * 3) % 120);
}
std::vector<float> matrix_of(int n, int k, float sign = 1) {
  std::vector<float> values;
  for (int row = 0; row < n; ++row)
    for (int col = 0; col < k; ++col) values.push_back(sign * element(row, col));
  return values;
}

template <class T>
float at(const PackedWeight& w, int64_t n, int64_t k) {
  return to_float(static_cast<const T*>(w.data)[packed_offset(n, k, w.k_blocks())]);
}

// Runs `describe` twice, as a model's load function is run.
template <class Describe>
WeightLoader load(const WeightSource* source, DType dtype, WorkerPool* workers, Describe describe) {
  WeightLoader::Options options;
  options.seed = 7;
  options.dtype = dtype;
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  EXPECT_TRUE(plan.status().has_value());
  options.source = source;
  options.bytes = plan.bytes();
  options.workers = workers;
  auto loader = WeightLoader::loading(std::move(options));
  EXPECT_TRUE(loader.has_value());
  describe(*loader);
  if (loader->status()) {
    EXPECT_EQ(loader->bytes(), plan.bytes());
  }
  return *std::move(loader);
}

TEST(WeightLoader, AMatrixStandsWhereThePackedLayoutSays) {
  constexpr int n = 37, k = 45;
  FakeSource source;
  source.add("w.weight", StoredType::f32, {n, k}, matrix_of(n, k));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int num_workers : {1, 2}) {
      WorkerPool workers({.num_workers = num_workers, .cpus = {}});
      PackedWeight w;
      const WeightLoader loader =
          load(&source, dtype, &workers, [&](WeightLoader& l) { w = l.matrix("w.weight", n, k); });
      ASSERT_TRUE(loader.status().has_value());
      EXPECT_EQ(w.bytes(), 48 * 64 * size_of(dtype));
      with_dtype(dtype, [&](auto t) {
        for (int row = 0; row < 48; ++row)
          for (int col = 0; col < 64; ++col)
            ASSERT_EQ((at<decltype(t)>(w, row, col)),
                      row < n && col < k ? element(row, col) : 0.0f);
      });
    }
  }
}

TEST(WeightLoader, StackedPartsMayMeetInsideAPanel) {
  constexpr int k = 32;
  FakeSource source;
  source.add("q.weight", StoredType::f32, {40, k}, matrix_of(40, k));
  source.add("k.weight", StoredType::f32, {3, k}, matrix_of(3, k, -1));
  source.add("v.weight", StoredType::f32, {30, k}, matrix_of(30, k));
  const WeightLoader::Part parts[] = {{"q.weight", 40}, {"k.weight", 3}, {"v.weight", 30}};
  PackedWeight w;
  const WeightLoader loader =
      load(&source, DType::bf16, nullptr, [&](WeightLoader& l) { w = l.stacked(parts, k); });
  ASSERT_TRUE(loader.status().has_value());
  EXPECT_EQ(w.n, 73);
  for (int row = 0; row < 80; ++row) {
    const float want = row < 40   ? element(row, 5)
                       : row < 43 ? -element(row - 40, 5)
                       : row < 73 ? element(row - 43, 5)
                                  : 0.0f;
    ASSERT_EQ(at<Bf16>(w, row, 5), want) << row;
  }
}

TEST(WeightLoader, GateAndUpPanelsAlternate) {
  constexpr int hidden = 40, intermediate = 50;  // padded to 64: 4 panels each
  FakeSource source;
  source.add("gate.weight", StoredType::f32, {intermediate, hidden},
             matrix_of(intermediate, hidden));
  source.add("up.weight", StoredType::f32, {intermediate, hidden},
             matrix_of(intermediate, hidden, -1));
  source.add("down.weight", StoredType::f32, {hidden, intermediate},
             matrix_of(hidden, intermediate));
  ExpertWeights w;
  const WeightLoader loader = load(&source, DType::bf16, nullptr, [&](WeightLoader& l) {
    w = l.swiglu({"gate.weight", "up.weight", "down.weight"}, hidden, intermediate);
  });
  ASSERT_TRUE(loader.status().has_value());
  EXPECT_EQ(w.gate_up.n, 128);
  EXPECT_EQ(w.gate_up.k, hidden);
  EXPECT_EQ(w.down.n, hidden);
  EXPECT_EQ(w.down.k, intermediate);
  for (int row = 0; row < 64; ++row) {
    const float want = row < intermediate ? element(row, 9) : 0.0f;
    ASSERT_EQ(at<Bf16>(w.gate_up, row / 16 * 32 + row % 16, 9), want);
    ASSERT_EQ(at<Bf16>(w.gate_up, row / 16 * 32 + 16 + row % 16, 9), -want);
  }
  for (int col = 0; col < intermediate; ++col)
    ASSERT_EQ(at<Bf16>(w.down, 39, col), element(39, col));
}

TEST(WeightLoader, BiasesStandWhereTheirRowsDo) {
  constexpr int k = 32;
  FakeSource source;
  std::vector<float> bias(40);
  for (int i = 0; i < 40; ++i) bias[i] = static_cast<float>(i) + 0.001f;  // stays float32
  for (const std::string name : {"q", "k", "gate", "up"}) {
    const int n = name == "k" ? 3 : 40;
    source.add(name + ".weight", StoredType::f32, {n, k}, matrix_of(n, k));
    source.add(name + ".bias", StoredType::f32, {n},
               std::vector<float>(bias.begin(), bias.begin() + n));
  }
  source.add("down.weight", StoredType::f32, {k, 40}, matrix_of(k, 40));
  source.add("down.bias", StoredType::f32, {k}, std::vector<float>(k, 2.0f));
  const WeightLoader::Part parts[] = {{"q.weight", 40}, {"k.weight", 3}};
  PackedWeight qk, none;
  ExpertWeights mlp;
  const WeightLoader loader = load(&source, DType::bf16, nullptr, [&](WeightLoader& l) {
    qk = l.stacked(parts, k, Bias::present);
    none = l.matrix("q.weight", 40, k);
    mlp = l.swiglu({"gate.weight", "up.weight", "down.weight"}, k, 40, Bias::present);
  });
  ASSERT_TRUE(loader.status().has_value()) << loader.status().error().message;
  EXPECT_EQ(none.bias, nullptr);
  for (int row = 0; row < 48; ++row)
    EXPECT_EQ(qk.bias[row], row < 40 ? bias[row] : row < 43 ? bias[row - 40] : 0.0f) << row;
  for (int row = 0; row < 64; ++row)
    for (const int up : {0, 16})
      EXPECT_EQ(mlp.gate_up.bias[row / 16 * 32 + row % 16 + up], row < 40 ? bias[row] : 0.0f);
  EXPECT_EQ(mlp.down.bias[31], 2.0f);
}

TEST(WeightLoader, LatentHeadsAreCutAndTurned) {
  const int heads = 3, nope = 20, value = 12, rank = 40;
  FakeSource source;
  source.add("kv_b.weight", StoredType::f32, {heads * (nope + value), rank},
             matrix_of(heads * (nope + value), rank));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    LatentHeadWeights w;
    const WeightLoader loader = load(&source, dtype, nullptr, [&](WeightLoader& l) {
      w = l.latent_heads("kv_b.weight", heads, nope, value, rank);
    });
    ASSERT_TRUE(loader.status().has_value());
    EXPECT_EQ(w.key_up[2].n, nope);
    EXPECT_EQ(w.value_up[2].n, value);
    EXPECT_EQ(w.key_absorb[2].n, rank);
    EXPECT_EQ(w.key_absorb[2].k, nope);
    with_dtype(dtype, [&](auto t) {
      using T = decltype(t);
      for (int h = 0; h < heads; ++h)
        for (int row = 0; row < nope + value; ++row)
          for (int col = 0; col < rank; ++col) {
            const float want = element(h * (nope + value) + row, col);
            if (row < nope) {
              ASSERT_EQ(at<T>(w.key_up[h], row, col), want);
              ASSERT_EQ(at<T>(w.key_absorb[h], col, row), want);
            } else {
              ASSERT_EQ(at<T>(w.value_up[h], row - nope, col), want);
            }
          }
    });
  }
}

TEST(WeightLoader, ConvertsEveryFormatToTheNearestEven) {
  const float ulp = 0x1p-7f;  // ulp of bf16 at 1
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  FakeSource source;
  source.add<float>("f32.weight", StoredType::f32, {1, 6},
                    {1 + ulp / 2, 1 + 1.5f * ulp, 1 + 0.51f * ulp, -inf, nan, 1e-40f});
  source.add<uint16_t>("f16.weight", StoredType::f16, {1, 4}, {0x3c00, 0x3c04, 0xfc00, 0x0001});
  source.add<uint16_t>("bf16.weight", StoredType::bf16, {1, 3}, {0x3f80, 0x7f80, 0xc000});
  PackedWeight f32, f16, bf16;
  const auto describe = [&](WeightLoader& l) {
    f32 = l.matrix("f32.weight", 1, 6), f16 = l.matrix("f16.weight", 1, 4),
    bf16 = l.matrix("bf16.weight", 1, 3);
  };
  const WeightLoader narrow = load(&source, DType::bf16, nullptr, describe);
  ASSERT_TRUE(narrow.status().has_value());
  EXPECT_EQ(at<Bf16>(f32, 0, 0), 1.0f);
  EXPECT_EQ(at<Bf16>(f32, 0, 1), 1 + 2 * ulp);
  EXPECT_EQ(at<Bf16>(f32, 0, 2), 1 + ulp);
  EXPECT_EQ(at<Bf16>(f32, 0, 3), -inf);
  EXPECT_TRUE(std::isnan(at<Bf16>(f32, 0, 4)));
  EXPECT_EQ(at<Bf16>(f16, 0, 0), 1.0f);
  EXPECT_EQ(at<Bf16>(f16, 0, 1), 1.0f);  // 1 + 2^-8: halfway, to even
  EXPECT_EQ(at<Bf16>(f16, 0, 2), -inf);
  EXPECT_EQ(at<Bf16>(f16, 0, 3), 0x1p-24f);
  EXPECT_EQ(at<Bf16>(bf16, 0, 1), inf);
  EXPECT_EQ(at<Bf16>(bf16, 0, 2), -2.0f);
  EXPECT_THAT(narrow.narrowed_from(), ElementsAre("float16", "float32"));

  const WeightLoader wide = load(&source, DType::f32, nullptr, describe);
  EXPECT_EQ(at<float>(f32, 0, 0), 1 + ulp / 2);
  EXPECT_EQ(at<float>(f16, 0, 1), 1 + ulp / 2);
  EXPECT_EQ(at<float>(bf16, 0, 2), -2.0f);
  EXPECT_TRUE(wide.narrowed_from().empty());
}

TEST(WeightLoader, VectorsAreFloat32) {
  FakeSource source;
  source.add<float>("norm", StoredType::f32, {3}, {1.0f, 1.001f, -2.0f});
  std::span<const float> v;
  WeightLoader loader =
      load(&source, DType::bf16, nullptr, [&](WeightLoader& l) { v = l.vector("norm", 3); });
  EXPECT_THAT(v, ElementsAre(1.0f, 1.001f, -2.0f));
  EXPECT_TRUE(loader.narrowed_from().empty());
  const Buffer memory = loader.take_memory();
  EXPECT_EQ(reinterpret_cast<const std::byte*>(v.data()), memory.data());
  EXPECT_THAT(v, ElementsAre(1.0f, 1.001f, -2.0f));
}

TEST(WeightLoader, TheFirstErrorStaysAndSaysWhatIsWrong) {
  FakeSource source;
  source.add("w.weight", StoredType::f32, {8, 4}, matrix_of(8, 4));
  source.add<int8_t>("quantized.weight", StoredType::i8, {2, 2}, {1, 2, 3, 4});
  const auto error_of = [&](auto describe) {
    return load(&source, DType::bf16, nullptr, describe).status().error();
  };
  const Error shape = error_of([](WeightLoader& l) {
    l.matrix("w.weight", 4, 8);
    l.matrix("missing.weight", 4, 8);
    l.vector("missing too", 8);
  });
  EXPECT_EQ(shape.code, ErrorCode::wrong_shape);
  EXPECT_EQ(shape.message, "w.weight has the shape [8, 4], but config.json asks for [4, 8]");
  const Error missing =
      error_of([](WeightLoader& l) { l.swiglu({"w.weight", "absent.weight", "w.weight"}, 4, 8); });
  EXPECT_EQ(missing.code, ErrorCode::missing_tensor);
  EXPECT_THAT(missing.message, HasSubstr("absent"));
  const Error rank = error_of([](WeightLoader& l) { l.vector("w.weight", 32); });
  EXPECT_EQ(rank.code, ErrorCode::wrong_shape);
  const Error type = error_of([](WeightLoader& l) { l.matrix("quantized.weight", 2, 2); });
  EXPECT_EQ(type.code, ErrorCode::unsupported_model);
  EXPECT_THAT(type.message, AllOf(HasSubstr("quantized"), HasSubstr("int8")));
}

TEST(WeightLoader, ProgressRisesToTheTotal) {
  FakeSource source;
  source.add("w.weight", StoredType::f32, {100, 50}, matrix_of(100, 50));
  WeightLoader plan = WeightLoader::measuring({});
  plan.matrix("w.weight", 100, 50);
  std::vector<LoadProgress> seen;
  WeightLoader::Options options;
  options.source = &source;
  options.bytes = plan.bytes();
  options.progress = [&](const LoadProgress& p) { seen.push_back(p); };
  auto loader = WeightLoader::loading(std::move(options));
  ASSERT_TRUE(loader.has_value());
  loader->matrix("w.weight", 100, 50);
  ASSERT_TRUE(loader->status().has_value());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().bytes_done, plan.bytes());
  EXPECT_EQ(seen.back().bytes_total, plan.bytes());
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].bytes_done, seen[i - 1].bytes_done);
}

TEST(WeightLoader, GivesEveryByteOfTheSourceBack) {
  FakeSource source;
  const int n = 5000, k = 2048;  // 41 MB in float32: several releases
  source.add("w.weight", StoredType::f32, {n, k}, std::vector<float>(int64_t{n} * k, 1.0f));
  source.add("v.weight", StoredType::f32, {k}, std::vector<float>(k, 1.0f));
  load(&source, DType::bf16, nullptr,
       [&](WeightLoader& l) { l.matrix("w.weight", n, k), l.vector("v.weight", k); });
  EXPECT_EQ(source.released(), (int64_t{n} + 1) * k * 4);
}

TEST(WeightLoader, RandomWeightsDoNotDependOnWorkersOrOrder) {
  WorkerPool two({.num_workers = 2, .cpus = {}});
  ExpertWeights a, b;
  PackedWeight am, bm;
  const auto expert = [](WeightLoader& l) {
    return l.swiglu({"g.weight", "u.weight", "d.weight"}, 96, 40);
  };
  const auto first = load(nullptr, DType::bf16, nullptr, [&](WeightLoader& l) {
    a = expert(l), am = l.matrix("m.weight", 70, 33);
  });
  const auto second = load(nullptr, DType::bf16, &two, [&](WeightLoader& l) {
    bm = l.matrix("m.weight", 70, 33), b = expert(l);
  });
  EXPECT_EQ(std::memcmp(a.gate_up.data, b.gate_up.data, a.gate_up.bytes()), 0);
  EXPECT_EQ(std::memcmp(a.down.data, b.down.data, a.down.bytes()), 0);
  EXPECT_EQ(std::memcmp(am.data, bm.data, am.bytes()), 0);
  std::vector<float> row(33);
  random_rows(7, "m.weight", 69, {row.data(), 1, 33});
  for (int col = 0; col < 33; ++col) EXPECT_EQ(at<Bf16>(am, 69, col), to_float(to_bf16(row[col])));
}

TEST(WeightLoader, TheSameModelFromFloat32ShardsAndFromBf16) {
  // The numbers of the bf16 folder are those of the float32 folder, rounded by PyTorch: packed,
  // both have the same bytes.
  const auto shards = open_model_weights(kGolden / "qwen3_moe");
  const auto single = open_model_weights(kGolden / "qwen3_moe_bf16");
  ASSERT_TRUE(shards.has_value() && single.has_value());
  const WeightLoader::Part qkv[] = {{"model.layers.0.self_attn.q_proj.weight", 128},
                                    {"model.layers.0.self_attn.k_proj.weight", 64},
                                    {"model.layers.0.self_attn.v_proj.weight", 64}};
  PackedWeight w;
  const auto describe = [&](WeightLoader& l) {
    w = l.stacked(qkv, 64);
    l.matrix("model.embed_tokens.weight", 512, 64);
    const std::string expert = "model.layers.2.mlp.experts.7.";
    l.swiglu({expert + "gate_proj.weight", expert + "up_proj.weight", expert + "down_proj.weight"},
             64, 32);
  };
  WeightLoader a = load(shards->get(), DType::bf16, nullptr, describe);
  WeightLoader b = load(single->get(), DType::bf16, nullptr, describe);
  ASSERT_TRUE(a.status().has_value()) << a.status().error().message;
  ASSERT_TRUE(b.status().has_value()) << b.status().error().message;
  EXPECT_THAT(a.narrowed_from(), ElementsAre("float32"));
  EXPECT_TRUE(b.narrowed_from().empty());
  const Buffer am = a.take_memory(), bm = b.take_memory();
  ASSERT_EQ(am.bytes(), bm.bytes());
  EXPECT_EQ(std::memcmp(am.data(), bm.data(), am.bytes()), 0);
  const auto q = (*single)->find(qkv[0].name);
  Bf16 stored;
  std::memcpy(&stored, q->data + (int64_t{77} * 64 + 13) * 2, 2);
  EXPECT_EQ(at<Bf16>(w, 77, 13), to_float(stored));
}

TEST(WeightLoaderDeathTest, AskingForMoreThanWasMeasuredIsABug) {
  WeightLoader::Options options;
  options.bytes = 1024;
  auto loader = WeightLoader::loading(std::move(options));
  ASSERT_TRUE(loader.has_value());
  loader->matrix("a.weight", 16, 32);
  EXPECT_DEATH(loader->matrix("b.weight", 16, 32), "CHECK failed");
}

}  // namespace
}  // namespace hocket
