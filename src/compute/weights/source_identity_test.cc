// The identity of a model's files, which is part of the key of cached weights.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "compute/weights/safetensors.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

TEST(SourceIdentity, FollowsTheFilesNotTheirPlace) {
  TestFolder folder;
  const auto write = [&](float value) {
    folder.add("a.weight", "F32", {2, 2}, std::vector<float>(4, value));
    folder.write_file();
  };
  const auto identity = [](const fs::path& path) {
    return *(*open_model_weights(path))->identity();
  };
  write(1);
  const fs::path file = folder.path() / "model.safetensors";
  const uint64_t first = identity(folder.path());
  EXPECT_EQ(identity(folder.path()), first);
  const auto when = fs::last_write_time(file);
  TestFolder elsewhere;
  fs::copy_file(file, elsewhere.path() / "model.safetensors");
  fs::last_write_time(elsewhere.path() / "model.safetensors", when);
  EXPECT_EQ(identity(elsewhere.path()), first);

  fs::last_write_time(file, when + std::chrono::nanoseconds(1));
  EXPECT_NE(identity(folder.path()), first);
  folder.add("b.weight", "F32", {2, 2}, std::vector<float>(4, 1));
  folder.write_file();  // same size
  fs::last_write_time(file, when);
  EXPECT_NE(identity(folder.path()), first);

  // Shards: each shard counts, and the index.
  TestFolder shards;
  for (const char* name : {"a", "b"}) {
    shards.add(name, "F32", {2}, std::vector<float>(2, 1));
    shards.write_file(std::string(name) + ".safetensors");
  }
  shards.write_index();
  const uint64_t both = identity(shards.path());
  fs::last_write_time(shards.path() / "b.safetensors", when);
  EXPECT_NE(identity(shards.path()), both);
}

// A container image may give all files of a fine-tuned model the same modification time.
TEST(SourceIdentity, SeesOtherNumbersInFilesOfEqualSizeAndTime) {
  TestFolder folder;
  folder.add("a.weight", "F32", {64, 64}, std::vector<float>(64 * 64, 1));
  folder.write_file();
  const auto identity = [&] { return *(*open_model_weights(folder.path()))->identity(); };
  const fs::path path = folder.path() / "model.safetensors";
  const uint64_t before = identity();
  const auto when = fs::last_write_time(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-64 * 64 * 2, std::ios::end);
  file.put('x');
  file.close();
  fs::last_write_time(path, when);
  EXPECT_NE(identity(), before);
}

}  // namespace
}  // namespace hocket
