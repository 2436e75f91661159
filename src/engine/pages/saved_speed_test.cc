#include "engine/pages/saved_speed.h"

#include <fstream>

#include "base/folder_testing.h"

namespace hocket {
namespace {

class SavedSpeedTest : public testing::FolderTest {
 protected:
  double load_text(std::string_view text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "prompt-speed") << text;
    return load_row_seconds(folder_);
  }
};

TEST_F(SavedSpeedTest, ComesBack) {
  EXPECT_EQ(load_row_seconds(folder_), 0);
  std::filesystem::create_directories(folder_);
  EXPECT_TRUE(save_row_seconds(folder_, 0.00125));
  EXPECT_EQ(load_row_seconds(folder_), 0.00125);
  EXPECT_FALSE(save_row_seconds(folder_ / "absent", 0.00125));
}

TEST_F(SavedSpeedTest, IsZeroIfTheFileHoldsAnythingElse) {
  EXPECT_EQ(load_text("2.5e-3\n"), 0.0025);
  for (const char* text :
       {"", "\n", "2.5e-3", "2.5e-3\n\n", "2.5e-3 s\n", "-2.5e-3\n", "0\n", "1e-12\n", "1e9\n",
        "nan\n", "inf\n", "speed\n", "0.00000000000000000000000000000000000001\n"})
    EXPECT_EQ(load_text(text), 0) << text;
}

}  // namespace
}  // namespace hocket
