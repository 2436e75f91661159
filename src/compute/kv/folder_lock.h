// Says whether processes use a folder of pages. Each of them holds a shared lock on a file in it
// named in-use. The system takes the lock away when the process ends, however it does. A process
// that deletes files in a folder of others holds the lock alone meanwhile. It releases the lock
// when is_wanted() says that another process starts there: that one has changed the size of the
// file. It may also have deleted the folder with the file in it; then the process that starts makes
// both again.
// Thread: any.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>

#include "base/clock.h"

namespace hocket {

class FolderLock {
 public:
  static constexpr const char* kFile = "in-use";
  // Limit of the wait for a process that deletes files there.
  static constexpr Duration kMaxWait = std::chrono::seconds(10);
  // Time between two tries to get the lock.
  static constexpr Duration kPollInterval = std::chrono::milliseconds(20);

  // The folder counts as used while the object lives. On a mount without locks, or one that cannot
  // be written and has no such file, nothing is held. If another process has the folder alone for
  // max_wait, a warning says so, and nothing is held until try_again() succeeds.
  static FolderLock begin(const std::filesystem::path& folder, Duration max_wait = kMaxWait);
  // Returns nullopt if a process uses the folder, or if that cannot be known.
  static std::optional<FolderLock> alone(const std::filesystem::path& folder);

  // Tries to hold the folder if begin() did not get it. Returns false if another process has it
  // alone. Then the file gets one more byte if asks_for_it is set, by which that process sees that
  // this one waits.
  bool try_again(bool asks_for_it = true);

  // Returns true once another process waits to use the folder that alone() took.
  bool is_wanted() const;

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  void wait(const std::filesystem::path& folder, Duration max_wait);
  int fd_;                               // -1: nothing is held
  std::atomic<bool> is_settled_{false};  // the lock is held, or the mount has none
  int64_t file_bytes_ = 0;               // the size of in-use when alone() took it
};

}  // namespace hocket
