#include "engine/plan/folder_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <string>

#include "base/folder_testing.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class FolderLimitTest : public testing::FolderTest {
 protected:
  FolderLimitTest() { fs::remove_all(in_memory_); }
  ~FolderLimitTest() override { fs::remove_all(in_memory_); }
  void SetUp() override {
    if (!is_in_memory(in_memory_.parent_path())) GTEST_SKIP() << "/dev/shm is not in memory";
    if (is_in_memory(folder_)) GTEST_SKIP() << "the tests' folder is in memory, too";
  }
  const fs::path in_memory_ = fs::path("/dev/shm") / ("hocket_limit_" + std::to_string(getpid()));
};

// A part of the memory is planned for the files, and a small one if no flag says how much.
TEST_F(FolderLimitTest, AFolderInMemoryTakesItsLimitFromTheRanks) {
  ServerSettings settings;
  EXPECT_EQ(folder_memory_of_rank(settings), 0) << "no folder";
  settings.memory.kv_cache_dir = folder_.string();
  settings.memory.kv_cache_dir_gb = 0.5;
  EXPECT_EQ(folder_memory_of_rank(settings), 0) << "on a disk";
  settings.memory.kv_cache_dir = (in_memory_ / "below").string();
  EXPECT_EQ(folder_memory_of_rank(settings), 500'000'000);
  const fs::path page = path_of_page(in_memory_ / "below" / "0123456789abcdef", PageKey{1});
  fs::create_directories(page.parent_path());
  std::ofstream(page) << std::string(1'000'000, 'a');
  std::ofstream(in_memory_ / "below" / "weights") << std::string(2'000'000, 'a');
  EXPECT_EQ(folder_memory_of_rank(settings), 499'000'000) << "that is not available any more";
  EXPECT_EQ(memory_beside_folder(500'000'000, settings), 1'000'000);
  EXPECT_EQ(memory_beside_folder(1, settings), 0);
  settings.parallel.ep_size = 2;
  EXPECT_EQ(folder_memory_of_rank(settings), 249'500'000);
  settings.memory.kv_cache_dir_gb = 0;
  const int64_t planned = folder_limit(0, in_memory_, 0).value();
  EXPECT_GT(planned, 0);
  EXPECT_LE(planned, kMaxMemoryBytes);
}

// The start says later, and within a limit of its own, that the folder does not answer.
TEST(FolderMemoryTest, AMountThatHangsIsNotAwaited) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  ServerSettings settings;
  settings.memory.kv_cache_dir = "/mnt/kv";
  const TimePoint begin = RealClock().now();
  const auto hang = [ended](double, const fs::path&) {
    ended.wait_for(10 * kMaxLook);
    return int64_t{1};
  };
  EXPECT_EQ(folder_memory_of_rank(settings, hang), 0);
  EXPECT_LT(RealClock().now() - begin, 5 * kMaxLook);
  end.set_value();
}

TEST(FolderLimit, TheSizeOfFilesIsThatOfTheFlagOrAShareOfTheDisk) {
  MemorySettings settings;
  EXPECT_EQ(max_stored_bytes(settings), 0);
  settings.kv_cache_dir = "/tmp/not/there/yet";
  const int64_t of_disk = max_stored_bytes(settings);
  EXPECT_GT(of_disk, 0);
  EXPECT_LT(of_disk, kUnknownDisk);
  settings.kv_cache_dir_gb = 1.5;
  EXPECT_EQ(max_stored_bytes(settings), 1'500'000'000);
}

}  // namespace
}  // namespace hocket
