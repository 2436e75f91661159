// Model shapes for `--load-format dummy` that need no files of a model.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace hocket {

// A temporary folder with the config.json of a shape. It is removed with this object.
class DummyShape {
 public:
  //   small  hidden 1024, 12 layers, 16/4 heads of 64, 32 experts top-4 of 512 (0.7 B parameters)
  //   mid    hidden 2048, 16 layers, 32/4 heads of 128, 64 experts top-8 of 768 (5.3 B)
  //   wire   hidden 2048, 6 layers, 8/2 heads of 64, 32 experts top-4 of 128 (0.3 B): rows are wide
  //          for little work, so that computing takes as long as an exchange over 1 Gbit/s
  // All have a vocabulary of 32,000 tokens. Errors: bad_value (name), io.
  static Result<DummyShape> create(std::string_view name);
  DummyShape(DummyShape&& other) noexcept { folder_.swap(other.folder_); }
  DummyShape& operator=(DummyShape&& other) noexcept { return folder_.swap(other.folder_), *this; }
  ~DummyShape();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  explicit DummyShape(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

}  // namespace hocket
