// Tests the memory of the index of files, the limit of their number, and what it knows of files
// that others delete.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "base/allocated_bytes_testing.h"
#include "base/folder_testing.h"
#include "compute/kv/page_files.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

class PageFilesIndexTest : public testing::FolderTest {
 protected:
  std::unique_ptr<PageFiles> open() {
    auto files = PageFiles::open(folder_);
    EXPECT_TRUE(files.has_value()) << files.error().message;
    return *std::move(files);
  }
  static PageKey key_of(int number) {
    PageKey key{};
    key[0] = static_cast<uint8_t>(number % 256);
    key[1] = static_cast<uint8_t>(number / 256);
    return key;
  }
  static void write(PageFiles& files, int first, int last) {
    const std::vector<std::byte> page(16);
    for (int i = first; i <= last; ++i) ASSERT_TRUE(files.write(key_of(i), page).has_value());
  }
};

TEST_F(PageFilesIndexTest, ALimitOfTheNumberOfFilesKeepsTheNewest) {
  const auto files = open();
  write(*files, 0, 4);
  files->limit(std::numeric_limits<int64_t>::max(), 3);
  EXPECT_EQ(files->figures().files, 3);
  write(*files, 5, 5);
  EXPECT_EQ(files->figures().evicted_total, 3u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(files->exists(key_of(i)), i >= 3) << i;
}

// One that cannot be written keeps all its files, which are read all the same.
TEST_F(PageFilesIndexTest, AFolderThatIsOnlyReadHasALimitWithoutDeletions) {
  write(*open(), 0, 4);
  const auto files = open();
  ASSERT_TRUE(files->list(3).has_value());
  EXPECT_EQ(files->figures().files, 3);
  std::vector<std::byte> page(16);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(files->read(key_of(i), page).value_or(false)) << i;
  EXPECT_EQ(files->figures().files, 3);
  EXPECT_EQ(files->figures().evicted_total, 0u);
}

// A page that only seems to be there would never be written again. The other process deletes it to
// keep its limit.
TEST_F(PageFilesIndexTest, AFileThatIsGoneOrCutIsNotKnownAnyMoreWhenItIsLookedFor) {
  const auto mine = open(), theirs = open();
  write(*mine, 0, 1);
  std::vector<std::byte> page(16);
  for (const int i : {1, 0}) EXPECT_TRUE(theirs->read(key_of(i), page).value_or(false));
  theirs->limit(std::numeric_limits<int64_t>::max(), 1);
  EXPECT_TRUE(mine->has(key_of(1)));
  EXPECT_FALSE(mine->exists(key_of(1)));
  EXPECT_FALSE(mine->has(key_of(1)));
  EXPECT_EQ(mine->figures().files, 1);
  EXPECT_TRUE(mine->exists(key_of(0)));
  std::filesystem::resize_file(path_of_page(folder_, key_of(0)), 90);
  EXPECT_FALSE(mine->exists(key_of(0)));
  EXPECT_FALSE(mine->has(key_of(0)));
  write(*mine, 0, 0);
  EXPECT_TRUE(mine->has(key_of(0)) && mine->exists(key_of(0)));
}

TEST_F(PageFilesIndexTest, TakesNoMoreThanTheNumberOfFilesForetells) {
  constexpr int kFiles = 2000;
  write(*open(), 0, kFiles - 1);
  const auto files = open();
  const int64_t before = allocated_bytes();
  ASSERT_TRUE(files->list().has_value());
  const int64_t taken = allocated_bytes() - before;
  EXPECT_EQ(files->figures().files, kFiles);
  EXPECT_LE(taken, PageFiles::index_bytes(kFiles));
  EXPECT_TRUE(taken == 0 || taken > PageFiles::index_bytes(kFiles) / 3) << taken;
}

}  // namespace
}  // namespace hocket
