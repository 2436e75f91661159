// Helpers for tests of this room: model folders written by hand, and matrices quantized in every
// way that files know, with their original numbers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/mix.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "core/model_config.h"

namespace hocket {

// Collects tensors and writes them to a temporary folder: as model.safetensors, or as shards with
// their index.
class TestFolder {
 public:
  TestFolder() {
    static int count = 0;
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("weights_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }

  template <class T>
  void add(const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
           const std::vector<T>& values) {
    tensors_.push_back({name, type, shape, std::string(values.size() * sizeof(T), '\0')});
    std::memcpy(tensors_.back().bytes.data(), values.data(), values.size() * sizeof(T));
  }
  // Writes the tensors that were added since the last shard.
  void write_file(const std::string& file = "model.safetensors") {
    std::string header = "{", data;
    for (const Tensor& t : tensors_) {
      header += (header.size() == 1 ? "\"" : ",\"") + t.name + R"(":{"dtype":")" + t.type +
                R"(","shape":[)";
      for (size_t i = 0; i < t.shape.size(); ++i)
        header += (i == 0 ? "" : ",") + std::to_string(t.shape[i]);
      header += R"(],"data_offsets":[)" + std::to_string(data.size()) + ",";
      data += t.bytes;
      header += std::to_string(data.size()) + "]}";
      index_ += (index_.empty() ? "\"" : ",\"") + t.name + R"(":")" + file + "\"";
    }
    header += "}";
    const uint64_t length = header.size();
    std::ofstream out(path_ / file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8) << header << data;
    tensors_.clear();
  }
  void write_index() const {
    std::ofstream(path_ / "model.safetensors.index.json") << R"({"weight_map":{)" << index_ << "}}";
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Tensor {
    std::string name, type;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::filesystem::path path_;
  std::vector<Tensor> tensors_;
  std::string index_;
};

// The definition of a quantized matrix: numbers, scales and zeros are drawn from its name.
struct TestMatrix {
  using Layout = QuantConfig::Layout;
  std::string module;
  int n = 0, k = 0;
  QuantConfig quant;
  bool symmetric = true;  // layout packed only: the matrix has no zero points
  // Layouts nvfp4, and fp8_block with one scale: the tensors have the names of other tools.
  bool modelopt = false;

  int group() const {
    if (quant.layout == Layout::mxfp4 || quant.layout == Layout::mxfp8) return kMxGroup;
    if (quant.layout == Layout::nvfp4) return kNvfp4Group;
    const bool fp8 = quant.layout == Layout::fp8_block || quant.layout == Layout::fp8_channel;
    return fp8 ? 128 : quant.group == 0 ? k : quant.group;
  }
  int groups() const { return (k + group() - 1) / group(); }
  bool is_fp8_tensor() const { return quant.layout == Layout::fp8_block && quant.group == 0; }
  uint64_t draw(uint64_t kind, uint64_t row, uint64_t col) const {
    uint64_t key = kind * 1'000'003 + row * 65'537 + col;
    for (const char c : module) key = mix64(key + static_cast<unsigned char>(c));
    return mix64(key);
  }
  int number(int row, int col) const {
    const auto bits = static_cast<int>(draw(1, row, col) & 255);
    switch (quant.layout) {
      case Layout::fp8_block:
      case Layout::fp8_channel:
      case Layout::mxfp8:
        return (bits & 127) == 127 ? 0 : bits;
      case Layout::int8_channel:
        return bits;
      default:
        return bits & 15;
    }
  }
  // The byte of a scale of mxfp4, mxfp8 and nvfp4.
  uint8_t scale_byte(int row, int g) const {
    const uint64_t bits = draw(2, row, g);
    return static_cast<uint8_t>(quant.layout == Layout::nvfp4 ? 1 + bits % 126 : 112 + bits % 20);
  }
  // compressed-tensors stores this number for all of an nvfp4 matrix, ModelOpt its reciprocal.
  float divisor() const { return static_cast<float>(100 + draw(4, 0, 0) % 1000); }
  float scale(int row, int g) const {
    if (quant.layout == Layout::nvfp4) return fp8_to_float(scale_byte(row, g));
    if (quant.layout == Layout::mxfp4 || quant.layout == Layout::mxfp8)
      return std::ldexp(1.0f, scale_byte(row, g) - 127);
    if (quant.layout == Layout::fp8_block) row /= 128;
    if (is_fp8_tensor()) row = g = 0;
    if (quant.layout == Layout::fp8_channel) g = 0;
    return static_cast<float>(1 + draw(2, row, g) % 1000) * 0x1p-12f;  // exact in float16
  }
  int zero(int row, int g) const {
    if (quant.layout == Layout::int8_channel) return 128;
    if (quant.layout == Layout::packed && symmetric) return 8;
    const auto z = static_cast<int>(draw(3, row, g) & 15);
    return quant.layout == Layout::gptq && quant.gptq_zeros_less_1 ? z + 1 : z;
  }
  float value(int row, int col) const {
    const float s = scale(row, col / group());
    if (quant.layout == Layout::mxfp4) return e2m1_to_float(number(row, col)) * s;
    if (quant.layout == Layout::nvfp4) return e2m1_to_float(number(row, col)) * s * (1 / divisor());
    if (quant.layout == Layout::mxfp8)
      return fp8_to_float(static_cast<uint8_t>(number(row, col))) * s;
    if (quant.layout == Layout::fp8_block || quant.layout == Layout::fp8_channel)
      return fp8_to_float(static_cast<uint8_t>(number(row, col))) * s;
    return static_cast<float>(number(row, col) - zero(row, col / group())) * s;
  }
};

// Adds the matrix as the tensors that its layout has.
void add_quantized(TestFolder& folder, const TestMatrix& m);

// Reads numbers, scales and zeros of a packed matrix, in the layout that packed_weight.h shows.
struct Unpacked {
  const PackedWeight& w;
  int number(int row, int col) const;
  float scale(int row, int col) const {
    return scale_at(w.format, w.scales, group_index(row, col));
  }
  int zero(int row, int col) const { return w.zeros[group_index(row, col)]; }
  float value(int row, int col) const;

 private:
  int64_t group_index(int row, int col) const {
    return (int64_t{row / 16} * w.groups() + col / w.group) * 16 + row % 16;
  }
};

}  // namespace hocket
