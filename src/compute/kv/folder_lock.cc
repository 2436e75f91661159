#include "compute/kv/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

// A process that takes the folder after the byte was written does not see it, so it is written
// again.
constexpr int kTriesPerByte = 10;
constexpr int kMaxTurns = 3;
constexpr int64_t kMaxFileBytes = 4096;  // then the file begins again, which changes its size, too

int open_lock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / FolderLock::kFile;
  const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | flags, 0600);
  return fd >= 0 ? fd : ::open(path.c_str(), O_RDONLY | flags);
}

int64_t size_of(int fd) {
  struct stat info{};
  return fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
}

// Returns true if the file is in no folder any more.
bool is_deleted(int fd) {
  struct stat info{};
  return fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink == 0;
}

// Signals the process that holds the lock alone. If the byte cannot be written, that process
// finishes its deletions first.
void add_byte(int fd) {
  const int64_t size = size_of(fd);
  static_cast<void>(size < kMaxFileBytes ? pwrite(fd, ".", 1, size) == 1 : ftruncate(fd, 0) == 0);
}

}  // namespace

FolderLock FolderLock::begin(const std::filesystem::path& folder, Duration max_wait) {
  // More than one turn is rare: another process would have to delete the folder once more.
  for (int i = 0; i < kMaxTurns; ++i) {
    FolderLock use(open_lock(folder));
    const bool is_absent = use.fd_ < 0 && errno == ENOENT;
    if (use.fd_ >= 0) use.wait(folder, max_wait);
    if (!is_absent && !is_deleted(use.fd_)) return use;
    mkdir(folder.c_str(), 0700);
  }
  return FolderLock(-1);
}

void FolderLock::wait(const std::filesystem::path& folder, Duration max_wait) {
  const RealClock clock;
  const TimePoint until = clock.now() + max_wait;
  for (int tries = 0; !try_again(tries % kTriesPerByte == 0); ++tries) {
    if (clock.now() >= until) {
      log::warning(
          "prefixes in files: another process has held {} for {:.0f} s, as one does that deletes "
          "old files there, so this one does not count as its user and may lose files to processes "
          "of other models until it gets its turn. To fix it: look for a process that hangs with "
          "{} open",
          folder.string(), to_seconds(max_wait), (folder / kFile).string());
      break;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

bool FolderLock::try_again(bool asks_for_it) {
  if (fd_ < 0 || is_settled_) return true;
  const bool is_denied =
      flock(fd_, LOCK_SH | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
  if (is_denied && asks_for_it) add_byte(fd_);
  is_settled_ = !is_denied;
  return !is_denied;
}

std::optional<FolderLock> FolderLock::alone(const std::filesystem::path& folder) {
  FolderLock use(open_lock(folder));
  if (use.fd_ < 0 || flock(use.fd_, LOCK_EX | LOCK_NB) != 0 || is_deleted(use.fd_))
    return std::nullopt;
  use.is_settled_ = true;
  use.file_bytes_ = size_of(use.fd_);
  return use;
}

bool FolderLock::is_wanted() const {
  return size_of(fd_) != file_bytes_;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      is_settled_(other.is_settled_.load()),
      file_bytes_(other.file_bytes_) {}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace hocket
