#include "base/mapped_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace hocket {
namespace {

constexpr size_t kBytes = 1 << 16;

// Maps a file, cuts off its end and then reads there.
[[noreturn]] void read_what_is_gone(bool is_named) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("mapped-{}", getpid());
  std::ofstream(path) << std::string(kBytes, 'x');
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const void* map = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file, 0);
  MappedFile named;
  if (is_named) named = MappedFile(map, kBytes, "layer-7.safetensors");
  watch_mapped_files();
  std::filesystem::resize_file(path, 10);
  std::filesystem::remove(path);
  _exit(static_cast<const volatile char*>(map)[kBytes - 1]);
}

TEST(MappedFilesDeathTest, AFileThatShrinksEndsTheProcessWithItsName) {
  EXPECT_EXIT(read_what_is_gone(true), testing::ExitedWithCode(3),
              "error.HK021.: layer-7.safetensors became shorter");
}

TEST(MappedFilesDeathTest, AnotherFaultIsAsBefore) {
  EXPECT_EXIT(read_what_is_gone(false), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace hocket
