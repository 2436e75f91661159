// Tests the limit of a folder of pages over the folders beside it, which have pages of other models
// or forms: what nobody uses counts and goes first by its last use, what a process uses stays.
#include "compute/kv/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>
#include <vector>

#include "base/folder_testing.h"
#include "base/log.h"
#include "compute/kv/page_files.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class FolderUseTest : public testing::FolderTest {
 protected:
  static constexpr int64_t kFileBytes = 1000 + 80;  // with its head

  static PageKey key_of(int number) {
    PageKey key{};
    key[0] = static_cast<uint8_t>(number);
    key[31] = 1;
    return key;
  }
  std::unique_ptr<PageFiles> open(const char* form) const {
    auto files = PageFiles::open(folder_ / form);
    EXPECT_TRUE(files.has_value());
    return *std::move(files);
  }
  // Writes a file that was last used `hours_ago` hours ago.
  static void write(PageFiles& files, int number, int hours_ago) {
    const std::vector<std::byte> page(1000, std::byte{7});
    ASSERT_TRUE(files.write(key_of(number), page).has_value());
    for (const auto& entry : fs::recursive_directory_iterator(files.folder()))
      if (entry.is_regular_file() && entry.path().filename().string().starts_with(name_of(number)))
        fs::last_write_time(entry,
                            fs::file_time_type::clock::now() - std::chrono::hours(hours_ago));
  }
  static std::string name_of(int number) {
    const std::string hex = "0123456789abcdef";
    return {hex[static_cast<size_t>(number) / 16], hex[static_cast<size_t>(number) % 16]};
  }
  static constexpr const char* kMine = "00112233445566aa";
  static constexpr const char* kOther = "fedcba9876543210";
};

TEST_F(FolderUseTest, FilesOfFormsThatNobodyUsesCountAndGoByTheirLastUse) {
  {
    const auto other = open(kOther);
    write(*other, 1, 30);
    write(*other, 2, 10);
    const auto mine = open(kMine);
    write(*mine, 3, 20);
    write(*mine, 4, 5);
  }
  const auto mine = open(kMine);
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().files, 2);
  EXPECT_EQ(mine->figures().bytes, 2 * kFileBytes);
  EXPECT_EQ(mine->figures().other_bytes, 2 * kFileBytes);
  mine->limit(3 * kFileBytes);
  const auto has = [&](const char* form, int number) { return open(form)->exists(key_of(number)); };
  EXPECT_FALSE(has(kOther, 1)) << "used last the longest ago";
  EXPECT_TRUE(has(kMine, 3) && has(kOther, 2) && has(kMine, 4));
  write(*mine, 5, 0);
  EXPECT_FALSE(has(kMine, 3)) << "older than what is left of the other form";
  EXPECT_TRUE(has(kOther, 2));
  write(*mine, 6, 0);
  EXPECT_FALSE(has(kOther, 2));
  EXPECT_TRUE(has(kMine, 4) && has(kMine, 5) && has(kMine, 6));
  EXPECT_EQ(mine->figures().other_bytes, 0);
  EXPECT_EQ(mine->figures().evicted_total, 3u);
  EXPECT_EQ(mine->figures().evicted_others_total, 2u);
  for (const auto& entry : fs::directory_iterator(folder_ / kOther))
    EXPECT_EQ(entry.path().filename(), "in-use") << "empty folders go, too";
}

TEST_F(FolderUseTest, AFormThatAProcessUsesStaysAndBoundsItself) {
  const auto other = open(kOther);
  write(*other, 1, 30);
  const auto mine = open(kMine);
  write(*mine, 2, 1);
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().other_bytes, 0);
  mine->limit(kFileBytes);
  EXPECT_TRUE(other->exists(key_of(1)) && mine->exists(key_of(2)));
}

TEST_F(FolderUseTest, AFormThatAProcessBeginsToUseStays) {
  write(*open(kOther), 1, 30);
  const auto mine = open(kMine);
  write(*mine, 2, 1);
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().other_bytes, kFileBytes);
  const auto other = open(kOther);
  mine->limit(kFileBytes);
  EXPECT_TRUE(other->exists(key_of(1)) && mine->exists(key_of(2)));
  EXPECT_EQ(mine->figures().other_bytes, 0);
  EXPECT_EQ(mine->figures().evicted_total, 0u);
}

// They are so many that most of them are still in the list when they have ceased to count.
TEST_F(FolderUseTest, AllFilesOfAFormThatAProcessBeginsToUseStay) {
  constexpr int kFiles = static_cast<int>(PageFiles::kListedAtOnce) + 500;
  const auto numbered = [](int number) {
    PageKey key = key_of(number % 256);
    key[1] = static_cast<uint8_t>(number / 256);
    return key;
  };
  const std::vector<std::byte> page(1000);
  {
    const auto other = open(kOther);
    for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(other->write(numbered(i), page).has_value());
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / kOther))
      fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(9));
  }
  const auto mine = open(kMine);
  for (const int number : {1, 2, 3}) write(*mine, number, 10 - number);
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().other_bytes, kFiles * kFileBytes);
  const auto other = open(kOther);
  mine->limit(kFileBytes);
  EXPECT_EQ(mine->figures().other_bytes, 0);
  EXPECT_EQ(mine->figures().evicted_total, 2u);
  EXPECT_EQ(mine->figures().files, 1);
  for (int i = 0; i < kFiles; ++i) EXPECT_TRUE(other->exists(numbered(i))) << i;
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().files, 1);
}

// Saved sessions are of no use without their pages, and nothing else would ever delete them.
TEST_F(FolderUseTest, AFormGoesWithItsLastPage) {
  write(*open(kOther), 1, 30);
  for (const char* owner : {"00", "01"}) {
    fs::create_directories(folder_ / kOther / "sessions" / owner);
    fs::copy_file("/proc/self/comm", folder_ / kOther / "sessions" / owner / "saved");
  }
  fs::copy_file("/proc/self/comm", folder_ / kOther / "prompt-speed");
  const auto mine = open(kMine);
  write(*mine, 2, 1);
  ASSERT_TRUE(mine->list());
  mine->limit(kFileBytes);
  EXPECT_EQ(mine->figures().evicted_others_total, 1u);
  EXPECT_FALSE(fs::exists(folder_ / kOther));
  const auto other = open(kOther);
  write(*other, 1, 0);
  EXPECT_TRUE(other->exists(key_of(1)));
}

// A list of tokens is enough to bring a session back from there.
TEST_F(FolderUseTest, SessionsStayWhileAnotherStoreMayHaveTheirPages) {
  const auto age = [](const fs::path& path, std::chrono::hours hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - hours);
  };
  const fs::path sessions = folder_ / kOther / "sessions";
  write(*open(kOther), 1, 30);
  note_shared(folder_ / kOther);
  for (const char* owner : {"00", "01"}) {
    fs::create_directories(sessions / owner);
    fs::copy_file("/proc/self/comm", sessions / owner / "saved");
  }
  age(sessions / "00" / "saved", kOtherStoreKeeps - std::chrono::hours(1));
  age(sessions / "01" / "saved", kOtherStoreKeeps + std::chrono::hours(1));
  const auto mine = open(kMine);
  write(*mine, 2, 1);
  ASSERT_TRUE(mine->list());
  mine->limit(kFileBytes);
  EXPECT_EQ(mine->figures().evicted_others_total, 1u);
  EXPECT_TRUE(fs::exists(sessions / "00" / "saved"));
  EXPECT_FALSE(fs::exists(sessions / "01"));
  age(sessions / "00" / "saved", kOtherStoreKeeps + std::chrono::hours(1));
  ASSERT_TRUE(mine->list());
  EXPECT_TRUE(fs::exists(sessions / "00" / "saved")) << "a process used the form a moment ago";
  age(folder_ / kOther / kOtherStoreFile, std::chrono::hours(2));
  ASSERT_TRUE(mine->list());
  EXPECT_FALSE(fs::exists(folder_ / kOther));
}

// The process that deleted the files has deleted the folder, too, before it gave the lock back.
TEST_F(FolderUseTest, AProcessThatStartsMakesAFolderAgainThatWasDeleted) {
  fs::create_directories(folder_);
  auto alone = FolderLock::alone(folder_);
  ASSERT_TRUE(alone.has_value());
  auto started = std::async(std::launch::async, [&] { return FolderLock::begin(folder_); });
  const TimePoint end = RealClock().now() + FolderLock::kMaxWait;
  while (!alone->is_wanted() && RealClock().now() < end) std::this_thread::yield();
  fs::remove_all(folder_);
  alone.reset();
  const FolderLock use = started.get();
  EXPECT_TRUE(fs::exists(folder_ / "in-use"));
  EXPECT_FALSE(FolderLock::alone(folder_).has_value()) << "it is in use now";
}

// The lock leaves with its process, however that ends.
TEST_F(FolderUseTest, AProcessThatIsKilledUsesItsFolderNoMore) {
  write(*open(kOther), 1, 30);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t user = fork();
  ASSERT_GE(user, 0);
  if (user == 0) {
    const auto files = open(kOther);
    static_cast<void>(!::write(ready[1], "x", 1));
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(FolderLock::alone(folder_ / kOther).has_value());
  ASSERT_EQ(kill(user, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(user, &status, 0), user);
  EXPECT_TRUE(FolderLock::alone(folder_ / kOther).has_value());
  close(ready[0]), close(ready[1]);
}

// Another process has the folder alone while it deletes files there. It learns that a process
// starts, and gives the folder back.
TEST_F(FolderUseTest, AProcessThatStartsGetsTheFolderFromOneThatDeletesFiles) {
  fs::create_directories(folder_);
  auto alone = FolderLock::alone(folder_);
  ASSERT_TRUE(alone.has_value());
  EXPECT_FALSE(alone->is_wanted());
  auto started = std::async(std::launch::async, [&] { return FolderLock::begin(folder_); });
  const TimePoint end = RealClock().now() + FolderLock::kMaxWait;
  while (!alone->is_wanted() && RealClock().now() < end) std::this_thread::yield();
  EXPECT_TRUE(alone->is_wanted());
  alone.reset();
  const FolderLock use = started.get();
  EXPECT_FALSE(FolderLock::alone(folder_).has_value()) << "it is in use now";
}

// Another process may get the folder behind the byte, and then learns of it by the next one.
TEST_F(FolderUseTest, AProcessThatStartsAsksAgain) {
  fs::create_directories(folder_);
  auto alone = FolderLock::alone(folder_);
  ASSERT_TRUE(alone.has_value());
  auto started = std::async(std::launch::async, [&] { return FolderLock::begin(folder_); });
  const TimePoint end = RealClock().now() + FolderLock::kMaxWait;
  while (fs::file_size(folder_ / "in-use") < 2 && RealClock().now() < end)
    std::this_thread::sleep_for(FolderLock::kPollInterval);
  EXPECT_GE(fs::file_size(folder_ / "in-use"), 2u);
  alone.reset();
  started.get();
}

// Asking continues for as long as a process hangs, so the file may not grow with it.
TEST_F(FolderUseTest, AskingForAFolderTakesABoundedFile) {
  fs::create_directories(folder_);
  const auto alone = FolderLock::alone(folder_);
  ::testing::internal::CaptureStderr();
  FolderLock use = FolderLock::begin(folder_, Duration{});
  log::flush();
  ::testing::internal::GetCapturedStderr();
  for (int i = 0; i < 5000; ++i) EXPECT_FALSE(use.try_again());
  EXPECT_LE(fs::file_size(folder_ / "in-use"), 4096u);
  EXPECT_TRUE(alone->is_wanted());
}

// Its locks are not seen here, but the time of its file is.
TEST_F(FolderUseTest, AFileThatWasUsedSinceItWasListedKeepsItsFolder) {
  {
    const auto other = open(kOther);
    write(*other, 1, 30);
    write(*other, 2, 20);
  }
  const auto mine = open(kMine);
  write(*mine, 3, 1);
  ASSERT_TRUE(mine->list());
  EXPECT_EQ(mine->figures().other_bytes, 2 * kFileBytes);
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / kOther))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with(name_of(1)))
      fs::last_write_time(entry, fs::file_time_type::clock::now());
  mine->limit(kFileBytes);
  EXPECT_EQ(mine->figures().other_bytes, 0);
  EXPECT_EQ(mine->figures().evicted_total, 0u);
  const auto other = open(kOther);
  EXPECT_TRUE(other->exists(key_of(1)) && other->exists(key_of(2)) && mine->exists(key_of(3)));
}

TEST_F(FolderUseTest, AProcessThatGetsNoFolderSaysSoAndGetsItLater) {
  fs::create_directories(folder_);
  auto alone = FolderLock::alone(folder_);
  ASSERT_TRUE(alone.has_value());
  ::testing::internal::CaptureStderr();
  FolderLock use = FolderLock::begin(folder_, Duration{});
  log::flush();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("another process has held " + folder_.string()), std::string::npos) << said;
  EXPECT_FALSE(use.try_again());
  alone.reset();
  EXPECT_TRUE(use.try_again());
  EXPECT_FALSE(FolderLock::alone(folder_).has_value()) << "it is in use now";
}

TEST_F(FolderUseTest, WhatIsNoFolderOfPagesStays) {
  fs::create_directories(folder_ / kOther / "ab");
  fs::create_directories(folder_ / "notes");
  for (const char* name : {"fedcba9876543210/ab/letter.txt", "fedcba9876543210/own", "notes/ab"})
    fs::copy_file("/proc/self/comm", folder_ / name);
  const auto mine = open(kMine);
  write(*mine, 1, 1);
  ASSERT_TRUE(mine->list());
  mine->limit(1);
  for (const char* name : {"fedcba9876543210/ab/letter.txt", "fedcba9876543210/own", "notes/ab"})
    EXPECT_TRUE(fs::exists(folder_ / name));
}

}  // namespace
}  // namespace hocket
