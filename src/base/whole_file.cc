#include "base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

namespace hocket {
namespace {

constexpr auto kAbandonedAge = std::chrono::hours(1);

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

// Has the disk learn the new name. Some mounts flush no folder, and keep their names in their own
// time, so a failure is none of the file.
void flush_folder(const std::filesystem::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

bool is_abandoned_file(const std::filesystem::path& path) {
  if (!path.filename().string().starts_with(kUnfinishedFile)) return false;
  std::error_code gone;
  const auto written = std::filesystem::last_write_time(path, gone);
  return !gone && std::filesystem::file_time_type::clock::now() - written > kAbandonedAge;
}

int write_whole_file(const std::filesystem::path& path,
                     std::initializer_list<std::span<const std::byte>> parts, FileFlush flush) {
  std::string fresh = path.parent_path() / (std::string(kUnfinishedFile) + "XXXXXX");
  const int fd = mkostemp(fresh.data(), O_CLOEXEC);  // a new file, whose mode is 0600
  if (fd < 0) return errno;
  int problem = 0;
  for (const auto& part : parts)
    if (problem == 0) problem = write_all(fd, part);
  const bool is_flushed = flush == FileFlush::before_rename;
  if (problem == 0 && is_flushed && fdatasync(fd) != 0) problem = errno;
  if (close(fd) != 0 && problem == 0) problem = errno;
  if (problem == 0 && rename(fresh.c_str(), path.c_str()) != 0) problem = errno;
  if (problem != 0) unlink(fresh.c_str());
  if (problem == 0 && is_flushed) flush_folder(path.parent_path());
  return problem;
}

}  // namespace hocket
