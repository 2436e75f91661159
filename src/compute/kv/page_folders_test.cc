#include "compute/kv/page_folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <vector>

#include "base/folder_testing.h"
#include "compute/kv/page_files.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class PageFoldersTest : public testing::FolderTest {
 protected:
  static constexpr int kFolders = 32;
  static constexpr uid_t kNobody = 65534;
  // Makes a page in each of some folders, of which every fourth one cannot be listed.
  void SetUp() override {
    for (int i = 0; i < kFolders; ++i) {
      PageKey key{};
      key[0] = static_cast<uint8_t>(i);
      const fs::path page = path_of_page(folder_, key);
      fs::create_directories(page.parent_path());
      std::ofstream(page) << "page";
      if (i % 4 == 0) fs::permissions(page.parent_path(), fs::perms::none);
    }
    if (geteuid() == 0) is_root_ = seteuid(kNobody) == 0;
    // access() would ask for the real user.
    if (faccessat(AT_FDCWD, folder_.c_str(), R_OK | X_OK, AT_EACCESS) != 0)
      GTEST_SKIP() << "the folder is hidden";
  }
  ~PageFoldersTest() override {
    if (is_root_ && seteuid(0) != 0) ADD_FAILURE() << "root again";
    for (const auto& entry : fs::directory_iterator(folder_))
      fs::permissions(entry.path(), fs::perms::owner_all);
  }
  bool is_root_ = false;
};

// The others count against the limit all the same.
TEST_F(PageFoldersTest, AFolderThatCannotBeListedHidesNoOther) {
  std::error_code problem;
  EXPECT_EQ(find_pages(folder_, 1000, problem).size(), static_cast<size_t>(kFolders * 3 / 4));
  EXPECT_EQ(problem, std::errc::permission_denied);
}

using AbandonedFilesTest = testing::FolderTest;

// A process was killed while it wrote the hashes of a model, or the list of a session.
TEST_F(AbandonedFilesTest, TheyAreDeletedBesideFoldersOfPagesToo) {
  const fs::path form = folder_ / "0123456789abcdef";
  const auto files = PageFiles::open(form);
  ASSERT_TRUE(files.has_value());
  const fs::path owner = form / kSessionsFolder / "owner";
  fs::create_directories(owner);
  const auto make = [](const fs::path& path, std::chrono::hours age) {
    std::ofstream(path) << "half";
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  };
  for (const fs::path& place : {folder_, form, owner}) {
    make(place / "unfinished-a", std::chrono::hours(2));
    make(place / "unfinished-b", std::chrono::hours(0));
    make(place / "another", std::chrono::hours(2));
  }
  ASSERT_TRUE((*files)->list());
  for (const fs::path& place : {folder_, form, owner}) {
    SCOPED_TRACE(place.string());
    EXPECT_FALSE(fs::exists(place / "unfinished-a"));
    EXPECT_TRUE(fs::exists(place / "unfinished-b")) << "its writer may be at work";
    EXPECT_TRUE(fs::exists(place / "another"));
  }
}

// Another process was killed when this one had listed the folder long ago.
TEST_F(AbandonedFilesTest, TheyAreDeletedWhilePagesAreWritten) {
  const fs::path form = folder_ / "0123456789abcdef";
  const auto files = PageFiles::open(form);
  ASSERT_TRUE(files.has_value());
  ASSERT_TRUE((*files)->list());
  const fs::path owner = form / kSessionsFolder / "owner";
  for (const fs::path& place : {folder_, form, owner, form / "00", form / "7f", form / "ff"}) {
    fs::create_directories(place);
    for (const bool is_old : {true, false}) {
      const fs::path path = place / (is_old ? "unfinished-old" : "unfinished-new");
      std::ofstream(path) << "half a page";
      const auto age = std::chrono::hours(is_old ? 2 : 0);
      fs::last_write_time(path, fs::file_time_type::clock::now() - age);
    }
  }
  const std::vector<std::byte> page(16);
  for (uint64_t i = 0; i < kSweepParts * PageFiles::kWritesOfSweep; ++i)
    ASSERT_TRUE((*files)->write(PageKey{1}, page));
  for (const fs::path& place : {folder_, form, owner, form / "00", form / "7f", form / "ff"}) {
    SCOPED_TRACE(place.string());
    EXPECT_FALSE(fs::exists(place / "unfinished-old"));
    EXPECT_TRUE(fs::exists(place / "unfinished-new")) << "its writer may be at work";
  }
}

}  // namespace
}  // namespace hocket
