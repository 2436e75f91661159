// Blocks of GGUF files from the file to packed memory: what products read there is what the file
// says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/worker_pool.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/task_product.h"
#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_rows.h"
#include "compute/weights/golden_folder_testing.h"
#include "compute/weights/loader.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

// The tensors of two files, one of each type; "Q4_K.weight" is that of type Q4_K.
class TypeSource final : public WeightSource {
 public:
  TypeSource() {
    for (const char* const folder : {"gguf_types", "gguf_grids"}) {
      files_.push_back(*GgufFile::open(kGolden / folder / "types.gguf"));
      for (const auto& [name, tensor] : files_.back()->parts()[0].header.tensors)
        matrices_[std::string(name) + ".weight"] = {tensor.type, files_.back()->find(name).data,
                                                    tensor.shape[0], tensor.shape[1]};
    }
  }
  const std::map<std::string, GgufMatrix, std::less<>>& matrices() const { return matrices_; }
  const GgufMatrix& matrix(std::string_view type) const {
    return matrices_.find(std::string(type) + ".weight")->second;
  }

  bool has(std::string_view name) const override { return matrices_.contains(name); }
  Result<StoredTensor> find(std::string_view name) const override {
    const auto found = matrices_.find(name);
    if (found == matrices_.end()) return fail(ErrorCode::missing_tensor, "no tensor {}", name);
    StoredTensor tensor{.type = StoredType::rows, .shape = {found->second.rows, found->second.k}};
    tensor.rows = gguf_rows(found->second);
    return tensor;
  }
  std::vector<std::string> names() const override { return {}; }
  void done_with(const StoredTensor&) const override {}

 private:
  std::vector<std::shared_ptr<const GgufFile>> files_;
  std::map<std::string, GgufMatrix, std::less<>> matrices_;
};

// A product and the loader that has its memory.
struct Loaded {
  std::optional<WeightLoader> loader;
  PackedWeight weight;
};
template <class Describe>
Loaded load(const TypeSource& source, WeightFormat quantize, Describe describe) {
  WeightLoader::Options options;
  options.source = &source;
  options.stored.layout = QuantConfig::Layout::gguf;
  options.quantize = quantize;
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  options.bytes = plan.bytes();
  Loaded out;
  auto loading = WeightLoader::loading(std::move(options));
  EXPECT_TRUE(loading.has_value());
  out.loader.emplace(*std::move(loading));
  out.weight = describe(*out.loader);
  EXPECT_TRUE(out.loader->status().has_value());
  EXPECT_EQ(out.loader->bytes(), plan.bytes());
  return out;
}
Loaded load_matrix(const TypeSource& source, const std::string& name,
                   WeightFormat quantize = WeightFormat::bf16) {
  const GgufMatrix& matrix = source.matrices().find(name)->second;
  return load(source, quantize, [&](WeightLoader& l) {
    return l.matrix(name, static_cast<int>(matrix.rows), static_cast<int>(matrix.k));
  });
}
Loaded load_stack(const TypeSource& source, std::initializer_list<const char*> types,
                  WeightFormat quantize = WeightFormat::bf16) {
  std::vector<WeightLoader::Part> parts;
  for (const char* const type : types)
    parts.push_back({std::string(type) + ".weight", static_cast<int>(source.matrix(type).rows)});
  const auto k = static_cast<int>(source.matrix(*types.begin()).k);
  return load(source, quantize, [&](WeightLoader& l) { return l.stacked(parts, k); });
}

// Returns column `k` of a weight, as products with a row that is 1 there and 0 elsewhere have it.
std::vector<float> column_of(const PackedWeight& w, int k) {
  auto p = scaled_product_of<int8_t>(w, 0, w.panels());
  std::vector<int8_t> x(static_cast<size_t>(round_up(w.k, kIntegerBlockK)));
  std::vector<float> scales(static_cast<size_t>(w.groups()), 1), y(w.panels() * kPanelN);
  std::vector<int32_t> sums(scales.size());
  x[k] = 1, sums[k / w.group] = 1;
  p.x = x.data(), p.x_stride = std::ssize(x), p.rows = 1;
  p.x_scales = scales.data(), p.x_sums = sums.data();
  p.y = y.data(), p.y_stride = std::ssize(y);
  product_kernels(Isa::ref).integer(w.format)(p);
  return y;
}

TEST(GgufLoading, ProductsReadTheNumbersOfTheFile) {
  const TypeSource source;
  std::map<bool, int> types;  // by whether values are kept
  for (const auto& [name, matrix] : source.matrices()) {
    const MatrixFormat format = format_of_blocks(matrix.type->id);
    if (!is_integer(format.format)) continue;
    const Loaded loaded = load_matrix(source, name);
    const PackedWeight& w = loaded.weight;
    EXPECT_EQ((MatrixFormat{w.format, w.group}), format) << name;
    std::vector<float> want(static_cast<size_t>(matrix.rows * matrix.k));
    read_blocks(*matrix.type, matrix.data, std::ssize(want), want.data());
    const bool kept = keeps_values(matrix.type->id);
    ++types[kept];
    for (int k = 0; k < w.k; ++k) {
      const std::vector<float> got = column_of(w, k);
      for (int n = 0; n < w.n; ++n) {
        const float value = want[int64_t{n} * w.k + k];
        if (kept) {
          ASSERT_EQ(got[n], value) << name << " " << n << ", " << k;
        } else {
          const float scale = scale_at(w.format, w.scales, w.scale_index(n, k / w.group));
          ASSERT_NEAR(got[n], value, 0.5001f * scale) << name << " " << n << ", " << k;
        }
      }
    }
  }
  EXPECT_EQ(types[true], 18);
  EXPECT_EQ(types[false], 3);
}

TEST(GgufLoading, EmbeddingsAreTheRoundedNumbersOfTheFile) {
  const TypeSource source;
  WorkerPool workers({.num_workers = 1});
  Backend backend = *Backend::create(Isa::ref, workers, 0);
  std::map<bool, int> kept;  // types of blocks that keep their format, by whether the head is tied
  for (const bool tied : {false, true})
    for (const auto& [name, matrix] : source.matrices()) {
      ModelConfig config;
      config.vocab_size = static_cast<int>(matrix.rows);
      config.hidden_size = static_cast<int>(matrix.k);
      config.tie_word_embeddings = tied;
      const Loaded loaded = load(source, WeightFormat::bf16,
                                 [&](WeightLoader& l) { return l.embedding(name, config); });
      const PackedWeight& w = loaded.weight;
      const MatrixFormat format = format_of_blocks(matrix.type->id);
      const bool keeps = format.is_scaled() && !(tied && format.format == WeightFormat::int4);
      EXPECT_EQ((MatrixFormat{w.format, w.group}), keeps ? format : MatrixFormat{}) << name;
      if (!keeps_values(matrix.type->id)) continue;
      kept[tied] += keeps ? 1 : 0;
      std::vector<float> want(static_cast<size_t>(matrix.rows * matrix.k)), got(want.size());
      read_blocks(*matrix.type, matrix.data, std::ssize(want), want.data());
      std::vector<TokenId> ids;
      for (int row = 0; row < w.n; ++row) ids.push_back(TokenId{row});
      embed(backend, ids, w, {got.data(), matrix.rows, matrix.k});
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(got[i], to_float(from_float<Bf16>(want[i]))) << name << " " << i;
    }
  EXPECT_EQ(kept[false], 19);
  EXPECT_EQ(kept[true], 18);
}

TEST(GgufLoading, QueriesKeysAndValuesStayApartByFormat) {
  const TypeSource source;
  const auto formats_of = [&](std::initializer_list<const char*> types) {
    WeightLoader::Options options;
    options.source = &source;
    WeightLoader loader = WeightLoader::measuring(options);
    std::vector<WeightLoader::Part> parts;
    for (const char* const type : types)
      parts.push_back({std::string(type) + ".weight", static_cast<int>(source.matrix(type).rows)});
    const auto k = static_cast<int>(source.matrix(*types.begin()).k);
    std::vector<std::pair<WeightFormat, int>> out;
    for (const PackedWeight& w : loader.stacked_by_format(parts, k))
      out.emplace_back(w.format, w.n / static_cast<int>(source.matrix("Q4_K").rows));
    EXPECT_EQ(loader.format_changes().joined.num_products, 0);
    return out;
  };
  using Formats = std::vector<std::pair<WeightFormat, int>>;
  EXPECT_EQ(formats_of({"Q4_K", "Q4_K", "Q6_K"}),
            (Formats{{WeightFormat::q4_k, 2}, {WeightFormat::q6_k, 1}}));
  EXPECT_EQ(formats_of({"Q5_K", "Q8_0", "Q4_K"}),
            (Formats{{WeightFormat::q5_k, 1}, {WeightFormat::q8_0, 1}, {WeightFormat::q4_k, 1}}));
  EXPECT_EQ(formats_of({"Q4_K", "Q4_K", "Q4_K"}), (Formats{{WeightFormat::q4_k, 3}}));
  EXPECT_EQ(formats_of({"F16", "Q4_K", "Q4_K"}), (Formats{{WeightFormat::bf16, 3}}));
  EXPECT_EQ(formats_of({"Q4_0", "Q8_0", "Q8_0"}),
            (Formats{{WeightFormat::int4, 1}, {WeightFormat::q8_0, 2}}));
  EXPECT_EQ(formats_of({"MXFP4", "Q8_0", "Q4_0"}),
            (Formats{{WeightFormat::mxfp4, 1}, {WeightFormat::q8_0, 1}, {WeightFormat::int4, 1}}));
}

TEST(GgufLoading, PartsOfSeveralTypesAreBytes) {
  const TypeSource source;
  const auto format_of = [](const Loaded& loaded) {
    return MatrixFormat{loaded.weight.format, loaded.weight.group};
  };
  const MatrixFormat bytes{WeightFormat::q8_0, kGgufGroup}, int4{WeightFormat::int4, 64};
  EXPECT_EQ(format_of(load_stack(source, {"Q4_K", "Q4_K"})),
            (MatrixFormat{WeightFormat::q4_k, kGgufGroup}));
  EXPECT_EQ(format_of(load_stack(source, {"Q4_K", "Q6_K"})), bytes);
  EXPECT_EQ(format_of(load_stack(source, {"IQ4_XS", "Q4_K"})), bytes);
  EXPECT_EQ(format_of(load_stack(source, {"Q4_K", "F16"})), MatrixFormat{});
  EXPECT_EQ(format_of(load_stack(source, {"Q4_0", "Q4_K"})), bytes);
  EXPECT_EQ(format_of(load_stack(source, {"MXFP4", "Q8_0"})), bytes);
  // int4 is asked of what the parts have in common, so it never costs memory.
  EXPECT_EQ(format_of(load_stack(source, {"Q4_K", "Q6_K"}, WeightFormat::int4)), int4);
  EXPECT_EQ(format_of(load_matrix(source, "Q4_K.weight", WeightFormat::int4)),
            (MatrixFormat{WeightFormat::q4_k, kGgufGroup}));
  for (const auto& [type, format] : {std::pair{"Q5_K.weight", WeightFormat::q5_k},
                                     std::pair{"Q6_K.weight", WeightFormat::q6_k}}) {
    EXPECT_EQ(format_of(load_matrix(source, type, WeightFormat::int8)),
              (MatrixFormat{format, kGgufGroup}));
    EXPECT_EQ(format_of(load_matrix(source, type, WeightFormat::int4)), int4);
  }

  const Loaded loaded = load_stack(source, {"Q4_K", "Q6_K"});
  EXPECT_EQ(loaded.loader->format_changes().joined.num_products, 1);
  EXPECT_EQ(loaded.loader->format_changes().requantized.num_products, 0);
}

TEST(GgufLoading, GatheredRowsAndColumnsKeepTheirFormatOrAreBytes) {
  const TypeSource source;
  const auto rows_of = [&](const char* type) { return gguf_rows(source.matrix(type)); };
  const int64_t k = source.matrix("Q4_K").k;
  const auto expect_values = [&](const StoredRows& rows, MatrixFormat format, float error) {
    ASSERT_EQ(rows.format(), format);
    RowScratch scratch;
    std::vector<float> want(static_cast<size_t>(2 * k)), got(want.size());
    rows.read(0, {want.data(), 2, k});
    const ScaledRows scaled = scratch.scaled(format, 2, k);
    ASSERT_TRUE(rows.read_scaled(0, scaled));
    dequantize_scaled_rows(scaled, {got.data(), 2, k});
    float largest = 0;
    for (const float x : want) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], error * largest) << i;
  };
  const MatrixFormat bytes{WeightFormat::q8_0, kGgufGroup};
  const MatrixFormat q4_k{WeightFormat::q4_k, kGgufGroup};
  constexpr float kRounded = 1 / 253.0f;
  expect_values(*gguf_gathered_rows({rows_of("Q4_K"), rows_of("Q4_K")}, {{1, 1, 1}, {0, 0, 1}}),
                q4_k, 0);
  expect_values(*gguf_gathered_rows({rows_of("Q4_K"), rows_of("Q5_K")}, {{1, 0, 1}, {0, 0, 1}}),
                bytes, kRounded);
  ASSERT_EQ(k % kScaleBlock, 0);
  std::vector<int64_t> wide, narrow;  // runs of whole blocks, and of halves, in reverse
  for (int64_t i = k / kScaleBlock; i-- > 0;) wide.push_back(i);
  for (int64_t i = 2 * k / kScaleBlock; i-- > 0;) narrow.push_back(i);
  expect_values(*gguf_gathered_columns(rows_of("Q4_K"), wide), q4_k, 0);
  expect_values(*gguf_gathered_columns(rows_of("Q4_K"), narrow), bytes, kRounded);
  expect_values(*gguf_gathered_columns(rows_of("IQ4_XS"), wide), {WeightFormat::iq4, kGgufGroup},
                0);
  expect_values(*gguf_gathered_columns(rows_of("Q5_K"), wide), {WeightFormat::q5_k, kGgufGroup}, 0);
  expect_values(*gguf_gathered_columns(rows_of("Q6_K"), wide), {WeightFormat::q6_k, kGgufGroup}, 0);
  expect_values(*gguf_gathered_columns(rows_of("Q3_K"), wide), {WeightFormat::q3_k, kGgufGroup}, 0);
}

// Each scale of float16 in a block is made an infinity.
TEST(GgufLoading, BlockScalesThatAreNotFiniteAreRefused) {
  const TypeSource source;
  struct ScaleOffset {
    const char* type;
    int64_t scale;  // its offset in the block
  };
  for (const ScaleOffset& at : {ScaleOffset{"Q4_K", 0},
                                {"Q4_K", 2},
                                {"IQ4_XS", 0},
                                {"TQ2_0", 64},
                                {"Q5_K", 2},
                                {"Q6_K", 208},
                                {"Q3_K", 108}}) {
    const GgufMatrix& matrix = source.matrix(at.type);
    std::vector<std::byte> row(matrix.data, matrix.data + matrix.row_bytes());
    RowScratch scratch;
    const ScaledRows scaled = scratch.scaled(format_of_blocks(matrix.type->id), 1, matrix.k);
    EXPECT_TRUE(read_scaled_blocks(*matrix.type, row.data(), scaled, 0)) << at.type;
    constexpr uint16_t kInfinity = 0x7c00;
    std::memcpy(row.data() + at.scale, &kInfinity, sizeof kInfinity);
    EXPECT_FALSE(read_scaled_blocks(*matrix.type, row.data(), scaled, 0)) << at.type;
  }
}

}  // namespace
}  // namespace hocket
