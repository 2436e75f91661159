// Writes a golden model again in a stored format, as the published tools would write it, and its
// twin: a float32 folder with the numbers that those files stand for.
#pragma once

#include <immintrin.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compute/weights/hf_config.h"
#include "compute/weights/stacked_experts.h"
#include "compute/weights/weight_folder_testing.h"
#include "engine/tests/testing.h"

namespace hocket::testing::stored_copies {

inline constexpr int kBlock = 128;              // edge of an fp8 block
inline constexpr float kColumnScale = 0x1p-9f;  // multiplies all numbers of an nvfp4 matrix

struct StoredFormat {
  const char* name;
  const char* config_of;  // folder whose quantization_config is used
  double max_kl;          // KL limit of bfloat16 against float32
};

inline uint16_t f16_bits(float x) {
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

// A matrix as numbers with scales: value = (number - zero) * scale, e4m3(number) * scale, or
// e2m1(number) * scale * outer.
struct Rounded {
  int64_t n = 0, k = 0;
  int64_t group_n = 1, group_k = 1;  // elements that share a scale
  bool e4m3 = false, e2m1 = false;
  float outer = 1;
  std::vector<int> numbers;   // [n, k]
  std::vector<int> zeros;     // [groups of n, groups of k]
  std::vector<float> scales;  // same shape as zeros; exact in float16 and bfloat16

  int64_t groups_k() const { return (k + group_k - 1) / group_k; }
  int64_t group(int64_t row, int64_t col) const {
    return row / group_n * groups_k() + col / group_k;
  }
  int number(int64_t row, int64_t col) const { return numbers[row * k + col]; }
  float value(int64_t row, int64_t col) const {
    const float scale = scales[group(row, col)];
    const int x = number(row, col);
    if (e2m1) return e2m1_to_float(x) * scale * outer;
    return (e4m3 ? fp8_to_float(static_cast<uint8_t>(x))
                 : static_cast<float>(x - zeros[group(row, col)])) *
           scale;
  }
};

inline int nearest_e4m3(float x) {
  static const std::vector<float> sizes = [] {
    std::vector<float> made;
    for (int bits = 0; bits < 127; ++bits) made.push_back(fp8_to_float(static_cast<uint8_t>(bits)));
    return made;
  }();
  const float size = std::min(std::abs(x), sizes.back());
  auto bits = static_cast<int>(std::ranges::lower_bound(sizes, size) - sizes.begin());
  if (bits > 0 && size - sizes[bits - 1] < sizes[bits] - size) --bits;
  return x < 0 ? bits | 128 : bits;
}

inline int nearest_e2m1(float x) {
  int best = 0;
  for (int bits = 1; bits < 8; ++bits)
    if (std::abs(e2m1_to_float(bits) - std::abs(x)) < std::abs(e2m1_to_float(best) - std::abs(x)))
      best = bits;
  return x < 0 ? best | 8 : best;
}

// Returns the scale of a group of mxfp4 or nvfp4 whose largest number is amax.
inline float e2m1_scale(float amax, std::string_view format) {
  const float wanted = std::max(amax, 1e-3f) / 6;
  if (format == "mxfp4") return std::exp2(std::ceil(std::log2(wanted)));
  return fp8_to_float(static_cast<uint8_t>(nearest_e4m3(wanted / kColumnScale)));
}

inline Rounded rounded(const std::vector<float>& w, int64_t n, int64_t k, std::string_view format) {
  Rounded r{.n = n, .k = k, .group_k = kInt4GroupSize};
  r.e4m3 = format.starts_with("fp8");
  const bool int8 = format == "w8a8";
  if (format == "fp8_block") r.group_n = r.group_k = kBlock;
  if (format == "fp8_channel" || int8) r.group_k = k;
  if (format == "fp8_tensor") r.group_n = n, r.group_k = k;
  r.e2m1 = format == "mxfp4" || format == "nvfp4";
  if (r.e2m1) r.group_k = format == "mxfp4" ? kMxGroup : kNvfp4Group;
  if (format == "nvfp4") r.outer = kColumnScale;
  const int64_t groups = (n + r.group_n - 1) / r.group_n * r.groups_k();
  std::vector<float> low(groups), high(groups);
  for (int64_t i = 0; i < n * k; ++i) {
    const int64_t g = r.group(i / k, i % k);
    low[g] = std::min(low[g], w[i]);
    high[g] = std::max(high[g], w[i]);
  }
  for (int64_t g = 0; g < groups; ++g) {
    const float amax = std::max(-low[g], high[g]);
    float scale = r.e4m3 ? amax / 448 : int8 ? amax / 127 : (high[g] - low[g]) / 15;
    // The "packed" format is symmetric.
    if (format == "packed") scale = amax / 7.5f;
    if (r.e2m1) scale = e2m1_scale(amax, format);
    r.scales.push_back(r.e2m1 ? scale : to_float(from_float<Bf16>(std::max(scale, 1e-3f))));
    const bool zero = format == "awq" || format == "gptq";
    const auto middle = static_cast<int>(std::lround(-low[g] / r.scales[g]));
    r.zeros.push_back(zero ? std::clamp(middle, 1, 15) : int8 || r.e4m3 ? 0 : 8);
  }
  for (int64_t i = 0; i < n * k; ++i) {
    const int64_t g = r.group(i / k, i % k);
    const float x = w[i] / (r.scales[g] * r.outer);
    const auto whole = static_cast<int>(std::lround(x));
    r.numbers.push_back(r.e2m1   ? nearest_e2m1(x)
                        : r.e4m3 ? nearest_e4m3(x)
                        : int8   ? std::clamp(whole, -128, 127)
                                 : std::clamp(whole + r.zeros[g], 0, 15));
  }
  return r;
}

// Packs words [rows, cols] of eight 4-bit numbers; number(r, c, i) goes into nibble i.
inline std::vector<uint32_t> words(int64_t rows, int64_t cols, auto number) {
  std::vector<uint32_t> made(rows * cols);
  for (int64_t at = 0; at < rows * cols; ++at)
    for (int i = 0; i < 8; ++i)
      made[at] |= static_cast<uint32_t>(number(at / cols, at % cols, i)) << 4 * i;
  return made;
}

inline void add_scales(TestFolder& folder, const std::string& name, const std::string& type,
                       std::vector<int64_t> shape, const std::vector<float>& scales) {
  std::vector<uint16_t> bits;
  for (const float s : scales)
    bits.push_back(type == "F16" ? f16_bits(s) : from_float<Bf16>(s).bits);
  folder.add(name, type, shape, bits);
}

// Transposes a matrix to columns first, as AWQ and GPTQ store it.
inline std::vector<float> turned(const std::vector<float>& x, int64_t rows, int64_t cols) {
  std::vector<float> made(x.size());
  for (int64_t i = 0; i < rows * cols; ++i) made[i % cols * rows + i / cols] = x[i];
  return made;
}

inline void add_e2m1(TestFolder& folder, const std::string& module, const Rounded& r) {
  std::vector<uint8_t> numbers, scales;
  for (int64_t i = 0; i < r.n * r.k; i += 2)
    numbers.push_back(static_cast<uint8_t>(r.numbers[i] | r.numbers[i + 1] << 4));
  const bool nvfp4 = r.group_k == kNvfp4Group;
  for (const float scale : r.scales)
    scales.push_back(static_cast<uint8_t>(nvfp4 ? nearest_e4m3(scale) : std::ilogb(scale) + 127));
  folder.add(module + ".weight_packed", "U8", {r.n, r.k / 2}, numbers);
  folder.add(module + ".weight_scale", nvfp4 ? "F8_E4M3" : "U8", {r.n, r.groups_k()}, scales);
  if (nvfp4)
    folder.add(module + ".weight_global_scale", "F32", {1}, std::vector<float>{1 / r.outer});
}

inline void add_rounded(TestFolder& folder, const std::string& module, const Rounded& r,
                        std::string_view format) {
  if (r.e2m1) return add_e2m1(folder, module, r);
  const int64_t n = r.n, k = r.k, groups = r.groups_k();
  const auto zero = [&](int64_t row, int64_t g) { return r.zeros[row * groups + g]; };
  const auto order = [](int i) { return std::array{0, 2, 4, 6, 1, 3, 5, 7}[i]; };
  if (format == "awq" || format == "gptq") {
    const bool awq = format == "awq";
    folder.add(module + ".qzeros", "I32", {groups, n / 8},
               words(groups, n / 8, [&](int64_t g, int64_t c, int i) {
                 return awq ? zero(c * 8 + order(i), g) : zero(c * 8 + i, g) - 1;
               }));
    if (awq)
      folder.add(module + ".qweight", "I32", {k, n / 8},
                 words(k, n / 8, [&](int64_t row, int64_t c, int i) {
                   return r.number(c * 8 + order(i), row);
                 }));
    else
      folder.add(
          module + ".qweight", "I32", {k / 8, n},
          words(k / 8, n, [&](int64_t row, int64_t c, int i) { return r.number(c, row * 8 + i); }));
    return add_scales(folder, module + ".scales", "F16", {groups, n}, turned(r.scales, n, groups));
  }
  if (format == "packed") {
    folder.add(
        module + ".weight_packed", "I32", {n, k / 8},
        words(n, k / 8, [&](int64_t row, int64_t c, int i) { return r.number(row, c * 8 + i); }));
    folder.add<int64_t>(module + ".weight_shape", "I64", {2}, {n, k});
    return add_scales(folder, module + ".weight_scale", "BF16", {n, groups}, r.scales);
  }
  const std::vector<uint8_t> bytes(r.numbers.begin(), r.numbers.end());
  folder.add(module + ".weight", format == "w8a8" ? "I8" : "F8_E4M3", {n, k}, bytes);
  if (format == "fp8_block")
    folder.add(module + ".weight_scale_inv", "F32",
               {static_cast<int64_t>(r.scales.size()) / groups, groups}, r.scales);
  else if (format == "fp8_tensor")
    folder.add(module + ".weight_scale_inv", "F32", {}, r.scales);
  else
    add_scales(folder, module + ".weight_scale", "BF16", {n, 1}, r.scales);
}

// Returns the numbers row after row, also those of one expert in a stacked tensor.
inline std::vector<float> floats_of(const StoredTensor& tensor) {
  HOCKET_CHECK(tensor.type == StoredType::f32);
  int64_t num = 1;
  for (const int64_t axis : tensor.shape) num *= axis;
  std::vector<float> values(num);
  const int64_t k = tensor.shape.empty() ? 1 : tensor.shape.back();
  const bool is_vector = tensor.shape.size() == 1, columns = tensor.column_step != 0;
  for (int64_t i = 0; i < num; ++i) {
    const int64_t row = is_vector ? i : i / k, col = is_vector ? 0 : i % k;
    const int64_t step = tensor.row_step != 0 ? tensor.row_step : is_vector || columns ? 1 : k;
    const int64_t at = row * step + col * (columns ? tensor.column_step : 1);
    std::memcpy(&values[i], tensor.data + at * sizeof(float), sizeof(float));
  }
  return values;
}

// Returns the names of the tensors with those of each expert in place of a stacked one, as tools
// that quantize write them.
inline std::vector<std::string> names_of_single_experts(const WeightSource& source,
                                                        int num_experts) {
  std::vector<std::string> all;
  for (const std::string& name : source.names()) {
    const size_t end = name.rfind("_proj"), begin = name.rfind('.', end);
    const std::string ending = end == name.npos ? "" : name.substr(end + 5);
    const bool bias = ending == "_bias", apart = ending == ".weight";
    const bool stacked = end != name.npos &&
                         (name.contains("experts.") ? ending.empty() || bias : apart) &&
                         source.find(name)->shape.size() == (bias ? 2u : 3u);
    if (!stacked) {
      all.push_back(name);
      continue;
    }
    std::string folder = name.substr(0, begin + 1);
    if (!folder.ends_with("experts.")) folder += "experts.";
    const std::string module = name.substr(begin + 1, end - begin - 1);
    for (int e = 0; e < num_experts; ++e)
      for (const char* part : {"gate", "up", "down"})
        if (module == part || (module == "gate_up" && *part != 'd'))
          all.push_back(folder + std::to_string(e) + '.' + part + "_proj" +
                        (bias ? ".bias" : ".weight"));
  }
  return all;
}

inline bool is_quantized_matrix(const std::string& name, const StoredTensor& tensor,
                                std::string_view format) {
  const size_t end = name.rfind(".weight"), begin = name.rfind('.', end - 1) + 1;
  if (end == name.npos || tensor.shape.size() != 2 || name.ends_with("router.proj.weight"))
    return false;
  const std::string module = name.substr(begin, end - begin);
  const bool wanted = module.ends_with("_proj") || module.starts_with("in_proj_qkv") ||
                      module == "in_proj_z" || module == "w1" || module == "w2" || module == "w3";
  if (!wanted) return false;
  const bool whole_groups = tensor.shape[1] % kInt4GroupSize == 0 && tensor.shape[0] % 8 == 0;
  return format != "float16" && format != "bfloat16" &&
         (whole_groups || format.starts_with("fp8") || format == "w8a8");
}

// Writes the golden folder in the format, and its float32 twin.
inline void write_copies(const std::string& family, const StoredFormat& format, TestFolder& stored,
                         TestFolder& twin) {
  const auto golden = source_dir() / "tests/golden";
  nlohmann::json config = nlohmann::json::parse(std::ifstream(golden / family / "config.json"));
  std::ofstream(twin.path() / "config.json") << config;
  if (format.config_of != nullptr)
    config["quantization_config"] =
        nlohmann::json::parse(std::ifstream(golden / format.config_of / "config.json"))
            .at("quantization_config");
  if (std::string_view(format.name) == "fp8_tensor")
    config["quantization_config"] = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  std::ofstream(stored.path() / "config.json") << config;

  const MoeConfig moe = read_hf_config(golden / family).value().moe;
  const auto source = open_model_weights(golden / family, moe);
  HOCKET_CHECK(source.has_value());
  const std::string_view kind = format.name;
  for (const std::string& name : names_of_single_experts(**source, moe.num_experts)) {
    const StoredTensor tensor = (*source)->find(name).value();
    std::vector<float> values = floats_of(tensor);
    if (is_quantized_matrix(name, tensor, kind)) {
      const Rounded r = rounded(values, tensor.shape[0], tensor.shape[1], kind);
      add_rounded(stored, name.substr(0, name.rfind('.')), r, kind);
      for (int64_t i = 0; i < std::ssize(values); ++i) values[i] = r.value(i / r.k, i % r.k);
    } else if (kind == "float16" || kind == "bfloat16") {
      std::vector<uint16_t> bits;
      for (float& x : values) {
        bits.push_back(kind == "float16" ? f16_bits(x) : from_float<Bf16>(x).bits);
        x = kind == "float16" ? f16_to_float(bits.back()) : to_float(Bf16{bits.back()});
      }
      stored.add(name, kind == "float16" ? "F16" : "BF16", tensor.shape, bits);
    } else {
      stored.add(name, "F32", tensor.shape, values);
    }
    twin.add(name, "F32", tensor.shape, values);
  }
  stored.write_file();
  twin.write_file();
}

}  // namespace hocket::testing::stored_copies
