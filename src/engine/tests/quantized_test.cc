// Quantized folders in the layout of published tools (tools/quantized_model): in float32 they equal
// the model whose weights their formulas give, bit for bit; in bfloat16 they stay near it.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "compute/weights/safetensors.h"
#include "engine/check/quality.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;
using Json = nlohmann::json;

// A matrix of the files as [rows, cols] numbers.
class Stored {
 public:
  Stored(const WeightSource& source, const std::string& name) : name_(name) {
    const auto found = source.find(name);
    HOCKET_CHECK(found.has_value());
    tensor_ = *found;
  }
  int64_t rows() const { return tensor_.shape[0]; }
  int64_t cols() const { return tensor_.shape.size() > 1 ? tensor_.shape[1] : 1; }
  const std::vector<int64_t>& shape() const { return tensor_.shape; }
  float number(int64_t r, int64_t c) const {
    const int64_t i = r * cols() + c;
    switch (tensor_.type) {
      case StoredType::f32:
        return at<float>(i);
      case StoredType::f16:
        return f16_to_float(at<uint16_t>(i));
      case StoredType::bf16:
        return to_float(Bf16{at<uint16_t>(i)});
      case StoredType::i8:
        return at<int8_t>(i);
      case StoredType::f8_e4m3:
        return e4m3(at<uint8_t>(i));
      default:
        ADD_FAILURE() << name_ << " is stored as " << stored_type_name(tensor_.type);
        return 0;
    }
  }
  int byte(int64_t r, int64_t c) const { return at<uint8_t>(r * cols() + c); }
  // Returns nibble i of the word at [r, c], the lowest first.
  int nibble(int64_t r, int64_t c, int64_t i) const {
    return at<uint32_t>(r * cols() + c) >> (4 * i) & 15;
  }

 private:
  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, tensor_.data + i * sizeof(T), sizeof(T));
    return value;
  }
  static float e4m3(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float size = exponent == 0 ? std::ldexp(mantissa / 8.0f, -6)
                                     : std::ldexp(1 + mantissa / 8.0f, exponent - 7);
    return bits & 0x80 ? -size : size;
  }

  std::string name_;
  StoredTensor tensor_;
};

// The matrix that a quantized module's tensors stand for: value(n, k) and the shape.
struct Meaning {
  int64_t n = 0, k = 0;
  std::function<float(int64_t n, int64_t k)> value;
};

Meaning awq(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".qweight"), zeros(source, module + ".qzeros"),
      scales(source, module + ".scales");
  const auto place = [](int64_t n) { return std::array{0, 4, 1, 5, 2, 6, 3, 7}[n % 8]; };
  return {scales.cols(), weight.rows(), [=](int64_t n, int64_t k) {
            const int q = weight.nibble(k, n / 8, place(n));
            const int z = zeros.nibble(k / kInt4GroupSize, n / 8, place(n));
            return static_cast<float>(q - z) * scales.number(k / kInt4GroupSize, n);
          }};
}

Meaning gptq(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".qweight"), zeros(source, module + ".qzeros"),
      scales(source, module + ".scales");
  return {scales.cols(), weight.rows() * 8, [=](int64_t n, int64_t k) {
            const int q = weight.nibble(k / 8, n, k % 8);
            const int z = zeros.nibble(k / kInt4GroupSize, n / 8, n % 8) + 1;
            return static_cast<float>(q - z) * scales.number(k / kInt4GroupSize, n);
          }};
}

Meaning packed(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".weight_packed"), scales(source, module + ".weight_scale");
  const std::string zero_name = module + ".weight_zero_point";
  std::optional<Stored> zeros;
  if (source.find(zero_name)) zeros.emplace(source, zero_name);
  return {weight.rows(), weight.cols() * 8, [=](int64_t n, int64_t k) {
            const int q = weight.nibble(n, k / 8, k % 8);
            const int z = zeros ? zeros->nibble(n / 8, k / kInt4GroupSize, n % 8) : 8;
            return static_cast<float>(q - z) * scales.number(n, k / kInt4GroupSize);
          }};
}

Meaning per_channel(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".weight"), scales(source, module + ".weight_scale");
  return {weight.rows(), weight.cols(),
          [=](int64_t n, int64_t k) { return weight.number(n, k) * scales.number(n, 0); }};
}

float e2m1(int bits) {
  const float size = std::array{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}[bits & 7];
  return bits & 8 ? -size : size;
}
// Returns number k of a row of two numbers a byte.
float e2m1_at(const Stored& pairs, int64_t n, int64_t k) {
  return e2m1(pairs.byte(n, k / 2) >> (k % 2 * 4) & 15);
}

Meaning mxfp4(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".weight_packed"), scales(source, module + ".weight_scale");
  return {weight.rows(), weight.cols() * 2, [=](int64_t n, int64_t k) {
            return std::ldexp(e2m1_at(weight, n, k), scales.byte(n, k / 32) - 127);
          }};
}

Meaning mxfp8(const WeightSource& source, const std::string& module) {
  const Stored weight(source, module + ".weight"), scales(source, module + ".weight_scale");
  return {weight.rows(), weight.cols(), [=](int64_t n, int64_t k) {
            return std::ldexp(weight.number(n, k), scales.byte(n, k / 32) - 127);
          }};
}

Meaning nvfp4(const WeightSource& source, const std::string& module) {
  const bool modelopt = !source.has(module + ".weight_packed");
  const Stored weight(source, module + (modelopt ? ".weight" : ".weight_packed")),
      scales(source, module + ".weight_scale"),
      all(source, module + (modelopt ? ".weight_scale_2" : ".weight_global_scale"));
  const float factor = modelopt ? all.number(0, 0) : 1 / all.number(0, 0);
  return {weight.rows(), weight.cols() * 2, [=](int64_t n, int64_t k) {
            return e2m1_at(weight, n, k) * scales.number(n, k / 16) * factor;
          }};
}

struct QuantizedFormat {
  const char* name;
  const char* mark;  // suffix of a quantized module's tensor name
  Meaning (*read)(const WeightSource&, const std::string& module);
  WeightFormat in_memory;
  double max_kl;  // KL limit of bfloat16 against float32
};
const QuantizedFormat kQuantizedFormats[] = {
    {"awq", ".qweight", awq, WeightFormat::int4, 1e-4},
    {"gptq", ".qweight", gptq, WeightFormat::int4, 1e-4},
    {"packed", ".weight_packed", packed, WeightFormat::int4, 1e-4},
    {"packed_zero", ".weight_packed", packed, WeightFormat::int4, 1e-4},
    {"w8a8", ".weight_scale", per_channel, WeightFormat::int8, 1e-4},
    {"fp8_channel", ".weight_scale", per_channel, WeightFormat::fp8, 1e-4},
    {"mxfp4", ".weight_scale", mxfp4, WeightFormat::mxfp4, 1e-4},
    {"mxfp8", ".weight_scale", mxfp8, WeightFormat::mxfp8, 1e-4},
    {"nvfp4", ".weight_scale", nvfp4, WeightFormat::nvfp4, 1e-4},
    {"modelopt", ".weight_scale", nvfp4, WeightFormat::nvfp4, 1e-4},
};

// Writes float32 tensors into one file, with their header.
class TensorFile {
 public:
  void add(const std::string& name, const std::vector<int64_t>& shape, auto value) {
    const size_t begin = data_.size() * sizeof(float);
    const int64_t cols = shape.size() > 1 ? shape[1] : 1;
    for (int64_t r = 0; r < shape[0]; ++r)
      for (int64_t c = 0; c < cols; ++c) data_.push_back(value(r, c));
    header_[name] = {{"dtype", "F32"},
                     {"shape", shape},
                     {"data_offsets", {begin, data_.size() * sizeof(float)}}};
  }
  void write(const std::filesystem::path& file) const {
    const std::string head = header_.dump();
    const uint64_t length = head.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << head;
    out.write(reinterpret_cast<const char*>(data_.data()),
              static_cast<std::streamsize>(data_.size() * sizeof(float)));
  }

 private:
  Json header_;
  std::vector<float> data_;
};

// Writes the same model unquantized into a temporary folder, and returns that.
std::filesystem::path write_twin(const QuantizedFormat& format,
                                 const std::filesystem::path& folder) {
  const auto twin =
      std::filesystem::path(::testing::TempDir()) / (std::string(format.name) + "_twin");
  std::filesystem::create_directories(twin);
  Json config = Json::parse(std::ifstream(folder / "config.json"));
  config.erase("quantization_config");
  std::ofstream(twin / "config.json") << config;

  const auto source = open_model_weights(folder);
  HOCKET_CHECK(source.has_value());
  TensorFile file;
  const std::string_view mark = format.mark;
  for (const std::string& name : (*source)->names()) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (name.ends_with(mark)) {
      const Meaning meaning = format.read(**source, module);
      file.add(module + ".weight", {meaning.n, meaning.k}, meaning.value);
    } else if (!(*source)->find(module + std::string(mark))) {
      const Stored plain(**source, name);
      file.add(name, plain.shape(), [&](int64_t r, int64_t c) { return plain.number(r, c); });
    }
  }
  file.write(twin / "model.safetensors");
  return twin;
}

std::vector<Script> random_scripts() {
  std::mt19937 random(4);
  const auto tokens = [&](int count) {
    std::vector<TokenId> drawn(count);
    for (TokenId& token : drawn) token = TokenId{static_cast<int>(random() % 512)};
    return drawn;
  };
  std::vector<Script> made;
  for (const int length : {1, 20, 90}) made.push_back({.prompt = tokens(length), .fed = tokens(8)});
  return made;
}

class QuantizedFolder : public ::testing::TestWithParam<QuantizedFormat> {
 protected:
  static LogitTable logits_of(const std::filesystem::path& folder, const std::string& dtype,
                              WeightFormat in_memory) {
    ServerSettings settings = settings_for(folder);
    settings.model.dtype = dtype;
    const auto runner = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
    if (!runner) {
      ADD_FAILURE() << describe(runner.error());
      return {};
    }
    EXPECT_EQ((*runner)->info().weight_format, in_memory);
    return record_logits(**runner, random_scripts(), {.chunk_tokens = 32, .max_together = 3})
        .value();
  }
};

TEST_P(QuantizedFolder, IsTheModelItsFormulasSay) {
  const QuantizedFormat& format = GetParam();
  const auto folder = source_dir() / "tests/golden/quantized" / format.name;
  const LogitTable float32 = logits_of(folder, "float32", WeightFormat::f32);
  const LogitTable twin = logits_of(write_twin(format, folder), "float32", WeightFormat::f32);
  ASSERT_GT(twin.values.size(), 0);
  EXPECT_TRUE(same_logits(float32, twin));

  const LogitTable bf16 = logits_of(folder, "bfloat16", format.in_memory);
  ASSERT_EQ(bf16.values.size(), twin.values.size());
  const LogitDistance off = distance(twin, bf16);
  std::printf("%s: mean KL %.3g, |logit difference| mean %.3g max %.3g\n", format.name, off.kl_mean,
              off.diff_mean, off.max_diff);
  EXPECT_GT(off.kl_mean, 0);
  EXPECT_LT(off.kl_mean, format.max_kl);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedFolder, ::testing::ValuesIn(kQuantizedFormats),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
