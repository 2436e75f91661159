#include "base/file_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace hocket {
namespace {

class FileOwnerTest : public testing::Test {
 protected:
  FileOwnerTest() { std::filesystem::remove_all(folder_); }
  ~FileOwnerTest() override { std::filesystem::remove_all(folder_); }

  Result<void> look(mode_t mode, OthersWrite others) const {
    std::filesystem::create_directories(folder_);
    EXPECT_EQ(chmod(folder_.c_str(), mode), 0);
    return check_folder_owner(folder_, others);
  }

  const std::filesystem::path folder_ = testing::TempDir() + fmt::format("file_owner_{}", getpid());
};

TEST_F(FileOwnerTest, AFolderThatOthersCanWriteIsRefused) {
  for (const mode_t mode : {0700U, 0755U}) EXPECT_TRUE(look(mode, OthersWrite::never)) << mode;
  // The user's own group may write, as beside a umask of 002.
  EXPECT_EQ(look(0770, OthersWrite::never).has_value(), getegid() == geteuid());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), 0, 1), 0);
    EXPECT_FALSE(look(0770, OthersWrite::if_sticky)) << "another group";
    ASSERT_EQ(chown(folder_.c_str(), 0, 0), 0);
  }
  for (const mode_t mode : {0777U, 0702U}) {
    const auto refused = look(mode, OthersWrite::if_sticky);
    ASSERT_FALSE(refused) << mode;
    EXPECT_TRUE(refused.error().message.contains(folder_.string()));
    EXPECT_TRUE(refused.error().fix.contains("chmod go-w " + folder_.string()));
  }
  EXPECT_TRUE(look(01777, OthersWrite::if_sticky));
  EXPECT_FALSE(look(01777, OthersWrite::never));
}

TEST_F(FileOwnerTest, AFolderOfAnotherUserIsRefusedAlsoBehindALink) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_TRUE(look(0700, OthersWrite::never));
  const std::filesystem::path theirs = folder_ / "theirs", link = folder_ / "link";
  std::filesystem::create_directory(theirs);
  std::filesystem::create_directory_symlink(theirs, link);
  EXPECT_TRUE(check_folder_owner(link));
  ASSERT_EQ(chown(theirs.c_str(), 1, 1), 0);
  for (const std::filesystem::path& path : {theirs, link}) {
    const auto refused = check_folder_owner(path);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().fix.contains("0 " + path.string()));
  }
  ASSERT_EQ(chown(theirs.c_str(), 0, 0), 0);
  ASSERT_EQ(lchown(link.c_str(), 1, 1), 0);
  const auto refused = check_folder_owner(link);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().fix.starts_with("chown -h 0 " + link.string()));
}

TEST_F(FileOwnerTest, WhatIsAbsentPasses) {
  EXPECT_TRUE(check_folder_owner(folder_ / "none"));
}

}  // namespace
}  // namespace hocket
