#include "base/text_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace hocket {
namespace {

TEST(TextFile, IsReadWholeUpToItsLimit) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("text-{}", getpid());
  std::ofstream(path) << std::string(3 << 20, 'x');
  EXPECT_EQ(read_text_file(path, 3 << 20).value(), std::string(3 << 20, 'x'));
  EXPECT_EQ(read_text_file(path, (3 << 20) - 1).error().code, ErrorCode::bad_value);
  std::filesystem::remove(path);
}

TEST(TextFile, FoldersDevicesAndNothingAreErrors) {
  EXPECT_EQ(read_text_file("/", 100).error().code, ErrorCode::io);
  EXPECT_EQ(read_text_file("/nowhere", 100).error().code, ErrorCode::io);
  EXPECT_EQ(read_text_file("/dev/zero", 100).error().code, ErrorCode::bad_value);
  EXPECT_EQ(read_text_file("/dev/null", 100).value(), "");
}

TEST(TextFile, LinesEndWithOrWithoutAnEnd) {
  std::istringstream text("a\n\nbc");
  std::string line;
  for (const char* expected : {"a", "", "bc"}) {
    EXPECT_TRUE(next_line(text, line, 2).value());
    EXPECT_EQ(line, expected);
  }
  EXPECT_FALSE(next_line(text, line, 2).value());
}

TEST(TextFile, ALineThatIsTooLongIsAnErrorAndSoIsAFolder) {
  std::istringstream text("abc\n");
  std::string line;
  EXPECT_EQ(next_line(text, line, 2).error().code, ErrorCode::bad_value);
  std::ifstream folder("/"), zeros("/dev/zero");
  EXPECT_EQ(next_line(folder, line, 100).error().code, ErrorCode::io);
  EXPECT_EQ(next_line(zeros, line, 100).error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
