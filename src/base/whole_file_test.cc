#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_testing.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public testing::FolderTest {
 protected:
  WholeFileTest() { fs::create_directories(folder_); }

  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int num_files() const {
    return static_cast<int>(std::distance(fs::directory_iterator(folder_), {}));
  }
};

TEST_F(WholeFileTest, TakesThePlaceOfTheOldFileAndLeavesNoOther) {
  const fs::path path = folder_ / "file";
  EXPECT_EQ(write_whole_file(path, {bytes_of("old")}), 0);
  EXPECT_EQ(write_whole_file(path, {bytes_of("new "), bytes_of("text")}), 0);
  EXPECT_EQ(read(path), "new text");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(num_files(), 1);
}

// The loss of power itself is not tested: this shows that the flushed path writes the same file.
TEST_F(WholeFileTest, AFileThatIsFlushedTakesThePlaceOfTheOldOne) {
  const fs::path path = folder_ / "file";
  EXPECT_EQ(write_whole_file(path, {bytes_of("old")}), 0);
  EXPECT_EQ(write_whole_file(path, {bytes_of("new "), bytes_of("text")}, FileFlush::before_rename),
            0);
  EXPECT_EQ(read(path), "new text");
  EXPECT_EQ(num_files(), 1);
  EXPECT_EQ(write_whole_file(folder_ / "none" / "file", {bytes_of("x")}, FileFlush::before_rename),
            ENOENT);
}

TEST_F(WholeFileTest, AFailureLeavesTheOldFileAsItWas) {
  const fs::path path = folder_ / "file";
  ASSERT_EQ(write_whole_file(path, {bytes_of("old")}), 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int problem = write_whole_file(path, {bytes_of("new "), bytes_of("text")});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(problem, EFBIG);
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(num_files(), 1);
  EXPECT_EQ(write_whole_file(folder_ / "none" / "file", {bytes_of("x")}), ENOENT);
  fs::create_directory(folder_ / "folder");
  EXPECT_EQ(write_whole_file(folder_ / "folder", {bytes_of("x")}), EISDIR);
  EXPECT_EQ(num_files(), 2);
}

// Writers that shared a name before would mix their bytes.
TEST_F(WholeFileTest, WritersAtOnceNeverShareAFile) {
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'})
    writers.emplace_back([&, letter] {
      const std::string text(10000, letter);
      for (int i = 0; i < 50; ++i)
        EXPECT_EQ(write_whole_file(folder_ / std::string(1, letter), {bytes_of(text)}), 0);
    });
  for (std::thread& writer : writers) writer.join();
  for (const char letter : {'a', 'b', 'c', 'd'})
    EXPECT_EQ(read(folder_ / std::string(1, letter)), std::string(10000, letter));
  EXPECT_EQ(num_files(), 4);
}

TEST_F(WholeFileTest, AnUnfinishedFileIsAbandonedAfterAnHour) {
  const fs::path path = folder_ / (std::string(kUnfinishedFile) + "abcdef");
  std::ofstream(path) << "x";
  EXPECT_FALSE(is_abandoned_file(path));
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(2);
  fs::last_write_time(path, old);
  EXPECT_TRUE(is_abandoned_file(path));
  std::ofstream(folder_ / "file") << "x";
  fs::last_write_time(folder_ / "file", old);
  EXPECT_FALSE(is_abandoned_file(folder_ / "file"));
}

}  // namespace
}  // namespace hocket
