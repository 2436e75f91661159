#include "compute/kv/page_files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "base/folder_testing.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPageBytes = 5000;
constexpr int64_t kHeadBytes = 80;

class PageFilesTest : public testing::FolderTest {
 protected:
  std::unique_ptr<PageFiles> open(int64_t max_pages = 100) {
    auto files = PageFiles::open(folder_);
    EXPECT_TRUE(files.has_value()) << files.error().message;
    EXPECT_TRUE((*files)->list());
    (*files)->limit(max_pages * (kPageBytes + kHeadBytes));
    return *std::move(files);
  }
  static PageKey key_of(int number) {
    PageKey key{};
    key[0] = static_cast<uint8_t>(number);
    key[31] = static_cast<uint8_t>(number * 7);
    return key;
  }
  static std::vector<std::byte> page_of(int number) {
    std::vector<std::byte> page(kPageBytes);
    std::mt19937 random(static_cast<uint32_t>(number));
    for (std::byte& byte : page) byte = static_cast<std::byte>(random());
    return page;
  }
  // The only file of the folder.
  fs::path only_file() const {
    fs::path found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file()) found = entry.path();
    return found;
  }
  static bool reads(PageFiles& files, int number) {
    std::vector<std::byte> page(kPageBytes);
    const auto found = files.read(key_of(number), page);
    EXPECT_TRUE(found.has_value());
    if (!*found) return false;
    EXPECT_EQ(page, page_of(number));
    return true;
  }
};

TEST_F(PageFilesTest, APageOutlivesTheProcess) {
  {
    auto files = open();
    EXPECT_FALSE(files->has(key_of(1)));
    ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
    EXPECT_TRUE(files->has(key_of(1)));
    EXPECT_TRUE(reads(*files, 1));
  }
  auto files = open();
  EXPECT_TRUE(files->has(key_of(1)));
  EXPECT_TRUE(reads(*files, 1));
  EXPECT_FALSE(reads(*files, 2));
}

// A start need not wait for the list: what was read and written meanwhile is newer than all of it.
TEST_F(PageFilesTest, PagesAreFoundBeforeTheFolderIsListed) {
  for (auto files = open(); int i : {1, 2, 3})
    ASSERT_TRUE(files->write(key_of(i), page_of(i)).has_value());
  auto opened = PageFiles::open(folder_);
  ASSERT_TRUE(opened.has_value());
  PageFiles& files = **opened;
  EXPECT_FALSE(files.has(key_of(1)));
  EXPECT_TRUE(files.exists(key_of(1)));
  EXPECT_TRUE(reads(files, 1));
  ASSERT_TRUE(files.write(key_of(4), page_of(4)).has_value());
  EXPECT_EQ(files.figures().files, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(files.list());
    EXPECT_EQ(files.figures().files, 4);
    EXPECT_EQ(files.figures().bytes, 4 * (kPageBytes + kHeadBytes));
  }
  files.limit(2 * (kPageBytes + kHeadBytes));
  EXPECT_TRUE(files.has(key_of(1)) && files.has(key_of(4)));
  EXPECT_FALSE(files.exists(key_of(2)) || files.exists(key_of(3)));
}

TEST_F(PageFilesTest, TheFileUsedLastTheLongestAgoGoesFirst) {
  auto files = open(3);
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(files->write(key_of(i), page_of(i)).has_value());
  EXPECT_TRUE(reads(*files, 1));
  ASSERT_TRUE(files->write(key_of(4), page_of(4)).has_value());
  EXPECT_TRUE(reads(*files, 1));
  EXPECT_FALSE(reads(*files, 2));
  EXPECT_TRUE(reads(*files, 3));
  EXPECT_EQ(files->figures().files, 3);
  EXPECT_EQ(files->figures().evicted_total, 1u);
}

// Flips each bit of a file in turn: of the head, and of a small page.
// The files of the prefixes used most are in memory, so nobody reads them. They are used all the
// same, which a second process has to know.
TEST_F(PageFilesTest, TheOrderOfUseOutlivesTheProcess) {
  {
    const auto files = open();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(files->write(key_of(i), page_of(i)));
    EXPECT_TRUE(files->has(key_of(0)));
    EXPECT_FALSE(files->has_untouched()) << "it was written just now";
  }
  const auto long_ago = fs::file_time_type::clock::now() - 2 * PageFiles::kTouchAfter;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (entry.is_regular_file() && entry.path().filename().string().size() == 64)
      fs::last_write_time(entry.path(), long_ago);
  {
    const auto files = open();
    for (const int i : {1, 3, 1}) EXPECT_TRUE(files->has(key_of(i)));
    EXPECT_TRUE(files->has_untouched());
    files->touch_used();
    EXPECT_FALSE(files->has_untouched());
    EXPECT_TRUE(files->has(key_of(1)));
    EXPECT_FALSE(files->has_untouched()) << "the file knows of a use not long ago";
  }
  const auto files = open(2);
  EXPECT_FALSE(reads(*files, 0));
  EXPECT_TRUE(reads(*files, 1));
  EXPECT_FALSE(reads(*files, 2));
  EXPECT_TRUE(reads(*files, 3));
}

TEST_F(PageFilesTest, EveryFlippedBitIsFound) {
  auto files = open();
  constexpr int kSmallPage = 40;
  const std::vector<std::byte> page(kSmallPage, std::byte{0x5a});
  std::vector<std::byte> read(kSmallPage);
  constexpr int kBits = 8 * (kSmallPage + static_cast<int>(kHeadBytes));
  for (int bit = 0; bit < kBits; ++bit) {
    ASSERT_TRUE(files->write(key_of(1), page).has_value());
    const fs::path path = only_file();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(bit / 8);
    const int byte = file.get();
    file.seekp(bit / 8);
    file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
    file.close();
    const auto found = files->read(key_of(1), read);
    ASSERT_TRUE(found.has_value());
    EXPECT_FALSE(*found) << "bit " << bit;
    EXPECT_FALSE(files->has(key_of(1)));
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(files->figures().damaged_total, static_cast<uint64_t>(kBits));
}

// A process is killed a thousand times while it writes; what it leaves is whole, or absent.
TEST_F(PageFilesTest, AKillInTheMiddleOfWritesLeavesWholePages) {
  constexpr int kKills = 1000, kKeys = 24;
  fs::create_directories(folder_);
  std::mt19937 random(11);
  int num_found = 0;
  for (int i = 0; i < kKills; ++i) {
    const auto wait = std::chrono::microseconds(random() % 1500);
    const int first = static_cast<int>(random() % kKeys);
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      auto files = PageFiles::open(folder_);
      for (int key = first; files.has_value(); key = (key + 1) % kKeys)
        static_cast<void>((*files)->write(key_of(key), page_of(key)));
      _exit(1);
    }
    std::this_thread::sleep_for(wait);
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status));
    if (i % 10 != 9) continue;
    auto files = open();
    for (int key = 0; key < kKeys; ++key) num_found += reads(*files, key) ? 1 : 0;
    ASSERT_EQ(files->figures().damaged_total, 0u) << "after kill " << i;
    if (i % 100 == 99) fs::remove_all(folder_);
  }
  EXPECT_GT(num_found, kKills / 10);
}

// A disk of 64 KiB, which only root can make.
TEST_F(PageFilesTest, AFullDiskIsAnErrorByNameAndNothingIsLost) {
  fs::create_directories(folder_);
  if (mount("none", folder_.c_str(), "tmpfs", 0, "size=64k,mode=700") != 0)
    GTEST_SKIP() << "no mount here";
  {
    auto files = open();
    int num_written = 0;
    while (num_written < 100 && files->write(key_of(num_written), page_of(num_written)))
      ++num_written;
    EXPECT_GT(num_written, 2);
    EXPECT_LT(num_written, 20);
    const auto full = files->write(key_of(50), page_of(50));
    ASSERT_FALSE(full.has_value());
    EXPECT_EQ(full.error().code, ErrorCode::io);
    EXPECT_NE(full.error().message.find(folder_.string()), std::string::npos);
    EXPECT_NE(full.error().fix.find("kv-cache-dir-gb"), std::string::npos);
    for (int i = 0; i < num_written; ++i) EXPECT_TRUE(reads(*files, i));
    EXPECT_FALSE(reads(*files, 50));
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      EXPECT_FALSE(entry.path().filename().string().starts_with("unfinished-"));
    files->limit(2 * (kPageBytes + kHeadBytes));  // room is made, and writes continue
    EXPECT_TRUE(files->write(key_of(51), page_of(51)).has_value());
    EXPECT_TRUE(reads(*files, 51));
  }
  EXPECT_EQ(umount(folder_.c_str()), 0);
}

// More than go under one lock.
TEST_F(PageFilesTest, ManyFilesGoAtOnce) {
  constexpr int kFiles = 2 * static_cast<int>(PageFiles::kListedAtOnce) + 100, kKept = 10;
  auto files = open();
  files->limit(std::numeric_limits<int64_t>::max());
  const std::vector<std::byte> page(16);
  const auto numbered = [](int number) {
    PageKey key = key_of(number);
    key[1] = static_cast<uint8_t>(number / 256);
    return key;
  };
  for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(files->write(numbered(i), page).has_value());
  files->limit(kKept * (16 + kHeadBytes));
  EXPECT_EQ(files->figures().files, kKept);
  EXPECT_EQ(files->figures().evicted_total, static_cast<uint64_t>(kFiles - kKept));
  for (int i = 0; i < kFiles; ++i) EXPECT_EQ(files->exists(numbered(i)), i >= kFiles - kKept) << i;
}

// Users who may write to them could put pages there, or another folder in the place of this one.
TEST_F(PageFilesTest, AFolderThatOthersCanWriteIsRefused) {
  const fs::path form = folder_ / "form";
  fs::create_directories(form);
  for (const fs::path& path : {folder_, form}) {
    ASSERT_EQ(chmod(path.c_str(), 0777), 0);
    const auto refused = PageFiles::open(form);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().param, "kv-cache-dir");
    EXPECT_NE(refused.error().fix.find("chmod go-w " + path.string()), std::string::npos);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_TRUE(PageFiles::open(form).has_value()) << "as below /tmp";
  if (geteuid() != 0) return;  // only root gives folders away
  ASSERT_EQ(chown(form.c_str(), 1, 1), 0);
  EXPECT_FALSE(PageFiles::open(form).has_value());
}

TEST_F(PageFilesTest, AFolderThatIsMadeIsSafeWhateverTheUmaskIs) {
  const mode_t before = umask(0);
  const auto files = PageFiles::open(folder_ / "given" / "form");
  umask(before);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(fs::status(folder_ / "given").permissions(), fs::perms(0755));
  EXPECT_TRUE(PageFiles::open(folder_ / "given" / "form").has_value());
}

TEST_F(PageFilesTest, ACutOrForeignFileReadsAsAbsent) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  const fs::path path = only_file();
  fs::resize_file(path, 100);
  EXPECT_FALSE(reads(*files, 1));
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  fs::resize_file(path, kPageBytes + kHeadBytes + 1);
  EXPECT_FALSE(reads(*files, 1));
  // A whole file under the name of another page.
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  ASSERT_TRUE(files->write(key_of(2), page_of(2)).has_value());
  fs::path other;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (entry.is_regular_file() && entry.path() != path) other = entry.path();
  fs::copy_file(other, path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(reads(*files, 1));
  EXPECT_TRUE(reads(*files, 2));
  // A link, a folder and a pipe in its place.
  fs::create_symlink(other, path);
  EXPECT_FALSE(reads(*files, 1));
  EXPECT_TRUE(reads(*files, 2));
}

TEST_F(PageFilesTest, APageOfAnotherSizeReadsAsAbsentAndStays) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  EXPECT_TRUE(files->exists(key_of(1)));
  std::vector<std::byte> larger(kPageBytes + 1);
  const auto found = files->read(key_of(1), larger);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(*found);
  EXPECT_EQ(files->figures().damaged_total, 0U);
  EXPECT_TRUE(reads(*files, 1));
}

TEST_F(PageFilesTest, AnEmptyFolderInThePlaceOfAFileGivesWay) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  const fs::path path = only_file();
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(reads(*files, 1));
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  EXPECT_TRUE(reads(*files, 1));
}

TEST_F(PageFilesTest, AFullFolderInThePlaceOfAFileStaysAndCostsThatPageAlone) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  const fs::path path = only_file();
  fs::remove(path);
  fs::create_directory(path);
  std::ofstream(path / "stranger.txt") << "not ours";
  const auto written = files->write(key_of(1), page_of(1));
  ASSERT_TRUE(written.has_value());
  EXPECT_FALSE(*written);
  EXPECT_FALSE(reads(*files, 1));
  ASSERT_TRUE(files->write(key_of(2), page_of(2)).has_value());
  EXPECT_TRUE(reads(*files, 2));
  EXPECT_TRUE(fs::exists(path / "stranger.txt"));
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    EXPECT_FALSE(entry.path().filename().string().starts_with("unfinished-"));
}

TEST_F(PageFilesTest, AProcessThatDiesWhileItWritesLeavesNoPage) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  const fs::path unfinished = only_file().parent_path() / "unfinished-1-1";
  std::ofstream(unfinished) << "half a page";
  std::ofstream(folder_ / "stranger.txt") << "not ours";
  files = open();
  EXPECT_EQ(files->figures().files, 1);
  EXPECT_TRUE(fs::exists(unfinished));  // its writer may still live
  fs::last_write_time(unfinished, fs::file_time_type::clock::now() - std::chrono::hours(2));
  files = open();
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_TRUE(fs::exists(folder_ / "stranger.txt"));
}

TEST_F(PageFilesTest, AFileOfAnotherProcessIsFoundWhenItIsAskedFor) {
  auto mine = open(), theirs = open();
  ASSERT_TRUE(theirs->write(key_of(1), page_of(1)).has_value());
  EXPECT_FALSE(mine->has(key_of(1)));
  EXPECT_TRUE(reads(*mine, 1));
  EXPECT_TRUE(mine->has(key_of(1)));
}

// Two processes with the same limit know the same files, in one order of use. Each counts those
// that it deletes itself.
TEST_F(PageFilesTest, AFileThatAnotherProcessDeletedIsNotCounted) {
  auto mine = open(), theirs = open();
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(mine->write(key_of(i), page_of(i)).has_value());
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(reads(*theirs, i));
  theirs->limit(kPageBytes + kHeadBytes);
  EXPECT_EQ(theirs->figures().evicted_total, 3u);
  mine->limit(kPageBytes + kHeadBytes);
  EXPECT_EQ(mine->figures().evicted_total, 0u);
  EXPECT_EQ(mine->figures().files, 1);
}

TEST_F(PageFilesTest, AFolderThatIsNoneIsAnErrorByName) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  const auto files = PageFiles::open(folder_ / "below");
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code, ErrorCode::io);
  EXPECT_NE(files.error().message.find(folder_.string()), std::string::npos);
}

TEST_F(PageFilesTest, AFolderThatGoesAwayReadsAsAbsentAndIsMadeAgain) {
  auto files = open();
  ASSERT_TRUE(files->write(key_of(1), page_of(1)).has_value());
  fs::remove_all(folder_);
  EXPECT_FALSE(reads(*files, 1));
  ASSERT_TRUE(files->write(key_of(2), page_of(2)).has_value());
  EXPECT_TRUE(reads(*files, 2));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  fs::remove_all(folder_);
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(files->write(key_of(3), page_of(3)).has_value());
}

}  // namespace
}  // namespace hocket
