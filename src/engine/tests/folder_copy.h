// A copy of a model's folder, whose files may change or go away. Tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace hocket::testing {

class FolderCopy {
 public:
  explicit FolderCopy(const std::filesystem::path& model) {
    std::filesystem::remove_all(path);
    std::filesystem::copy(model, path, std::filesystem::copy_options::recursive);
  }
  ~FolderCopy() { std::filesystem::remove_all(path); }
  void change() const {
    for (const auto& file : std::filesystem::directory_iterator(path))
      if (file.path().extension() == ".safetensors")
        std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now());
  }
  // Sets a number of config.json, in its text_config if there is one.
  void set(const std::string& key, int number) const {
    const std::filesystem::path file = path / "config.json";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(file));
    (config.contains("text_config") ? config["text_config"] : config)[key] = number;
    std::ofstream(file) << config;
  }
  const std::filesystem::path path =
      fmt::format("{}/hocket-copy-{}", ::testing::TempDir(), getpid());
};

}  // namespace hocket::testing
