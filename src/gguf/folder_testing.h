// A fixture with a folder in which a test writes GGUF files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gguf/file.h"
#include "gguf/testing.h"

namespace hocket {

class GgufFolderTest : public ::testing::Test {
 protected:
  GgufFolderTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("gguf_folder_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufFolderTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const GgufText& file) const {
    std::ofstream(folder_ / name, std::ios::binary) << file.bytes_as_text();
    return folder_ / name;
  }
  std::unique_ptr<const GgufFile> opened(const GgufText& text,
                                         GgufExtent extent = GgufExtent::whole) const {
    auto file = GgufFile::open(write("model.gguf", text), extent);
    EXPECT_TRUE(file.has_value()) << file.error().message;
    return *std::move(file);
  }

  std::filesystem::path folder_;
};

}  // namespace hocket
