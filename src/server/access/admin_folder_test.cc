#include "server/access/admin_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hocket {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class AdminFolder : public testing::Test {
 protected:
  AdminFolder() : root_(fs::path(testing::TempDir()) / ("admin_" + std::to_string(getpid()))) {}
  ~AdminFolder() override { fs::remove_all(root_); }
  std::string refused(std::string_view name) {
    const auto folder = admin_folder(root_, name, "output_dir");
    if (folder) return "";
    EXPECT_EQ(folder.error().param, "output_dir");
    return describe(folder.error());
  }
  const fs::path root_;
};

TEST_F(AdminFolder, IsBelowTheOneThatWasNamed) {
  EXPECT_EQ(admin_folder(root_, "", "output_dir").value(), root_.string());
  const std::string folder = admin_folder(root_, "a-1_b.c", "output_dir").value();
  EXPECT_EQ(folder, (root_ / "a-1_b.c").string());
  EXPECT_TRUE(fs::is_directory(folder));
  EXPECT_EQ(admin_folder(root_, "a-1_b.c", "output_dir").value(), folder);
}

TEST_F(AdminFolder, NoNameLeadsOut) {
  fs::create_directories(root_);
  fs::create_directory_symlink("/tmp", root_ / "link");
  std::ofstream(root_ / "file") << "x";
  for (const std::string& name :
       {std::string("/tmp"), std::string("../x"), std::string(".."), std::string("."),
        std::string("a/b"), std::string(".hidden"), std::string("a\0b", 3), std::string(65, 'a')})
    EXPECT_THAT(refused(name), HasSubstr("the name of a folder in --admin-folder")) << name;
  EXPECT_THAT(refused("link"), HasSubstr("is there, and no folder"));
  EXPECT_THAT(refused("file"), HasSubstr("is there, and no folder"));
}

TEST_F(AdminFolder, WithoutOneNothingIsWritten) {
  const auto none = admin_folder("", "x", "output_dir");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().fix, HasSubstr("--admin-folder"));
  EXPECT_EQ(admin_folder("/proc/nowhere", "x", "output_dir").error().code, ErrorCode::io);
}

}  // namespace
}  // namespace hocket
