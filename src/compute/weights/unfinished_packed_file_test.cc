// Files of packed weights as they are written and mapped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <fstream>

#include "base/mix.h"
#include "compute/weights/packed_file.h"
#include "compute/weights/packed_file_testing.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

std::vector<std::byte> mixed_bytes(int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(i));
  return bytes;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    all.push_back(entry.path().filename().string());
  return all;
}

// Returns the mapped pages of the map that begins at `data`, in KiB; -1 if there is no such map.
int64_t resident_kib(const std::byte* data) {
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(data));
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found |= line.starts_with(begin);
    if (found && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

TEST(PackedFile, IsMappedWholeByAllWorkers) {
  const TestFolder folder;
  const PackedKey key{.packing = 1, .source = 2, .bytes = (int64_t{37} << 20) + 5};
  const std::vector<std::byte> bytes = mixed_bytes(key.bytes);
  const std::filesystem::path path = PackedFile::path_in(folder.path(), "m", key);
  ASSERT_TRUE(write_packed(path, key, bytes).value_or(false));
  WorkerPool workers({.num_workers = 3, .cpus = {}});
  for (WorkerPool* const pool : {&workers, static_cast<WorkerPool*>(nullptr)}) {
    const auto opened = PackedFile::open(path, key, pool);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    const int64_t resident = resident_kib(opened->data());
    if (resident == 0) GTEST_SKIP() << "this kernel maps pages when they are read";
    EXPECT_EQ(resident, (37 << 10) + 4);
    EXPECT_EQ(std::memcmp(opened->data(), bytes.data(), bytes.size()), 0);
  }
}

TEST(UnfinishedPackedFile, LeavesNothingUnlessItIsFinished) {
  const TestFolder folder;
  const PackedKey key{.packing = 1, .source = 2, .bytes = 777};
  const std::filesystem::path path = PackedFile::path_in(folder.path(), "m", key);
  const std::vector<std::byte> bytes = mixed_bytes(key.bytes);
  for (const bool finishes : {false, true}) {
    auto unfinished = UnfinishedPackedFile::begin(path, key);
    ASSERT_TRUE(unfinished.has_value() && unfinished->has_value());
    std::optional<UnfinishedPackedFile> moved(**std::move(unfinished));
    EXPECT_EQ(names_in(folder.path()), std::vector{path.filename().string() + ".new"});
    EXPECT_FALSE(UnfinishedPackedFile::begin(path, key)->has_value());  // one process writes
    EXPECT_FALSE(PackedFile::open(path, key).has_value());
    if (finishes) {
      ASSERT_TRUE(moved->finish(bytes).has_value());
    }
    moved.reset();
    EXPECT_EQ(names_in(folder.path()).size(), finishes ? 1u : 0u);
  }
  const auto opened = PackedFile::open(path, key);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(std::memcmp(opened->data(), bytes.data(), bytes.size()), 0);
}

TEST(UnfinishedPackedFile, AWriterThatIsStoppedLeavesNothing) {
  const TestFolder folder;
  const PackedKey key{.packing = 1, .source = 2, .bytes = 777};
  const std::filesystem::path path = PackedFile::path_in(folder.path(), "m", key);
  const std::vector<std::byte> bytes = mixed_bytes(key.bytes);
  std::atomic<bool> stopping = true;
  {
    auto unfinished = UnfinishedPackedFile::begin(path, key);
    ASSERT_TRUE(unfinished.has_value() && unfinished->has_value());
    const auto written = (*unfinished)->finish(bytes, &stopping);
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, ErrorCode::shutting_down);
  }
  EXPECT_EQ(names_in(folder.path()).size(), 0u);
  stopping = false;
  auto unfinished = UnfinishedPackedFile::begin(path, key);
  ASSERT_TRUE(unfinished.has_value() && unfinished->has_value());
  EXPECT_TRUE((*unfinished)->finish(bytes, &stopping).has_value());
  EXPECT_EQ(names_in(folder.path()).size(), 1u);
}

// Drafts of other models, too, which no start writes again.
TEST(UnfinishedPackedFile, RemovesWhatKilledProcessesLeft) {
  const TestFolder folder;
  const auto leave = [&](const std::string& name, int age_s) {
    const int fd = open((folder.path() / name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const timespec then{.tv_sec = time(nullptr) - age_s};
    const timespec times[] = {then, then};
    EXPECT_EQ(futimens(fd, times), 0);
    return fd;
  };
  close(leave("old.weights.new", 4000));
  close(leave("young.weights.new", 3000));
  close(leave("old.weights", 4000));
  close(leave("other.new", 4000));
  const int held = leave("held.weights.new", 4000);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const PackedKey key{.packing = 1, .source = 2, .bytes = 777};
  ASSERT_TRUE(UnfinishedPackedFile::begin(folder.path() / "mine.weights", key).has_value());
  auto names = names_in(folder.path());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"held.weights.new", "old.weights", "other.new",
                                             "young.weights.new"}));
  close(held);
}

}  // namespace
}  // namespace hocket
