// A model.safetensors that tests change: names of tensors, or their bytes. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace hocket::testing {

struct TensorFile {
  explicit TensorFile(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), sizeof(length));
    std::string text(length, '\0');
    in.read(text.data(), static_cast<std::streamsize>(length));
    header = nlohmann::json::parse(text);
    header.erase("__metadata__");
    data.assign(std::istreambuf_iterator<char>(in), {});
  }
  void write(const std::filesystem::path& file) const {
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length)) << text << data;
  }
  // Returns the tensor's bytes, from its first on.
  char* bytes_of(const std::string& name) {
    return data.data() + header.at(name).at("data_offsets").at(0).get<size_t>();
  }
  // Adds a tensor of one float32.
  void add(const std::string& name) {
    header[name] = {{"dtype", "F32"},
                    {"shape", {1}},
                    {"data_offsets", {data.size(), data.size() + sizeof(float)}}};
    data.append(sizeof(float), '\0');
  }

  nlohmann::json header;  // by name: dtype, shape, data_offsets
  std::string data;
};

}  // namespace hocket::testing
