#include "compute/kv/page_folders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

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
    if (access(folder_.c_str(), R_OK | X_OK) != 0) GTEST_SKIP() << "the folder is hidden";
  }
  ~PageFoldersTest() override {
    if (is_root_) EXPECT_EQ(seteuid(0), 0);
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

}  // namespace
}  // namespace hocket
