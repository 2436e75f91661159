#include "compute/kv/open_page_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hocket {

OpenPageFile::OpenPageFile(const std::filesystem::path& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)),
      problem_(fd_ < 0 ? errno : 0) {}

OpenPageFile::~OpenPageFile() {
  if (fd_ >= 0) close(fd_);
}

bool OpenPageFile::is_absent() const {
  return problem_ == ENOENT || problem_ == ELOOP;
}

int64_t OpenPageFile::size() const {
  struct stat info{};
  return fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

int OpenPageFile::read(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t read = pread(fd_, bytes.data(), bytes.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return read < 0 ? errno : -1;
    bytes = bytes.subspan(static_cast<size_t>(read));
    offset += read;
  }
  return 0;
}

void OpenPageFile::touch() const {
  futimens(fd_, nullptr);
}

}  // namespace hocket
