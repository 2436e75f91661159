// A fixture for tests that need a folder of their own: its path is new, nothing is there when the
// test begins, and all is removed when it ends. For tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace hocket::testing {

class FolderTest : public ::testing::Test {
 protected:
  FolderTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                (std::string(::testing::UnitTest::GetInstance()->current_test_suite()->name()) +
                 "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_;
};

}  // namespace hocket::testing
