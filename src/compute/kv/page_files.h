// Keeps pages of keys and values, and states, in files of one folder, so that a computed prefix
// outlives its eviction and the process. A page (or a state: the same here) is named by a key that
// says all that its bytes depend on; the caller makes it and knows its size.
//
//   folder/3f/3f9a..c2   one file a page, its name the key in hex; page_header.h says what is in it
//
// A file is whole or absent: it is written under another name and then renamed. Whatever is damaged
// or does not belong there reads as absent and is deleted. Beyond limit() the file that was used
// last the longest ago is deleted first. Several processes may share a folder: a file that another
// one wrote is found when it is asked for.
//
// Folders beside this one that are named as it is, by 16 digits in hex, hold pages of other models
// or forms. Those that no process uses (folder_lock.h) count against the limit, too, and their
// files are deleted in the same order; with the last one all else is deleted that a form leaves,
// except saved sessions whose pages another store may have (page_folders.h).
// Thread: any. No lock is held for longer than kListedAtOnce files take.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "compute/kv/folder_lock.h"
#include "compute/kv/page_header.h"

namespace hocket {

class PageFiles {
 public:
  // Files are listed up to this number; more are never kept, whatever their size.
  static constexpr size_t kMaxFiles = 1 << 22;
  static constexpr std::chrono::minutes kTouchAfter{10};
  static constexpr size_t kMaxTouched = 1024;
  static constexpr ptrdiff_t kTouchedOfCall = 64;  // a slow mount takes milliseconds for each
  static constexpr size_t kListedAtOnce = 1024;    // so that has() never waits for long
  // Files that processes have left unfinished are looked for in one part of the folder (sweep_part)
  // at each such write, since listing all of it may take seconds.
  static constexpr uint64_t kWritesOfSweep = 16;

  // Makes the folder if it is absent. One that is read-only or full is read all the same, and
  // write() fails. Errors: io (cannot be made or read, or another user could put pages there),
  // naming the folder.
  static Result<std::unique_ptr<PageFiles>> open(std::filesystem::path folder);

  // Lists the files that are there, and those of folders beside it that no process uses, by the
  // time of their last use, which takes seconds for hundreds of thousands; all else may run
  // meanwhile. Until then only files that were written or read since open() are known to has(),
  // figures() and limit(). Errors: io; what could be listed is known all the same. max_known: for a
  // folder that is only read, and of which limit() would delete files. No more are ever known;
  // others are found when they are asked for.
  Result<void> list(size_t max_known = 2 * kMaxFiles);

  // Sets the limits for the size of all files together and for their number, and deletes what is
  // more; the newest is kept in any case. Without it the number alone is limited, to kMaxFiles. The
  // first file of another folder that is deleted is announced.
  void limit(int64_t max_bytes, size_t max_files = kMaxFiles);
  int64_t max_bytes() const;
  // Returns the most memory that the index of num_files takes, and their list while it is made.
  // A folder that has more of them at the start takes more until they are deleted.
  static int64_t index_bytes(int64_t num_files);

  // Returns true if the page is known to be there, and counts that as a use. Reads no disk.
  bool has(const PageKey& key);
  // Writes uses that has() has counted to kTouchedOfCall files whose last ones were kTouchAfter
  // old, so that the order of use outlives the process.
  void touch_used();
  bool has_untouched() const;
  // Returns true if there is a file for the page that is whole by its head, which another process
  // may have written. If there is none, has() learns it: another process may have deleted it.
  bool exists(const PageKey& key);
  // Returns false, and writes nothing, if someone else's folder has the page's name and is not
  // empty. Errors: io; then nothing is there under this key.
  Result<bool> write(const PageKey& key, std::span<const std::byte> page);
  // Fills `page`. Returns false if it is absent, of another size, or damaged: then it is deleted.
  // Errors: io (the disk fails).
  Result<bool> read(const PageKey& key, std::span<std::byte> page);

  struct Figures {
    int64_t files = 0, bytes = 0;
    int64_t other_bytes = 0;  // in folders beside it that no process uses
    // Files that this process has deleted: to keep the limit, and because they were damaged.
    uint64_t evicted_total = 0, damaged_total = 0;
    uint64_t evicted_others_total = 0;  // the part of evicted_total from those folders
  };
  Figures figures() const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct KeyHash {
    size_t operator()(const PageKey& key) const noexcept;
  };
  // mutex_ guards all but the path.
  struct OtherFolder {
    const std::filesystem::path path;
    int64_t num_files = 0, bytes = 0;  // in order_
    bool is_forgotten = false;         // its files count no more, and leave order_ at its end
  };
  struct File {
    PageKey key{};
    int64_t bytes = 0;
    std::shared_ptr<OtherFolder> other;      // null: it is of this folder
    std::filesystem::file_time_type used{};  // as its file says
  };
  using Order = std::list<File>;  // the newest use first

  PageFiles(std::filesystem::path folder, FolderLock use);
  std::filesystem::path path_of(const PageKey& key) const;
  void add(const File& file) HOCKET_REQUIRES(mutex_);  // as the newest
  void add_at(Order::iterator place, const File& file) HOCKET_REQUIRES(mutex_);
  void drop(const PageKey& key) HOCKET_REQUIRES(mutex_);
  void forget(OtherFolder& other) HOCKET_REQUIRES(mutex_);
  bool is_full() const HOCKET_REQUIRES(mutex_);
  // Takes files of one folder out of the order that are to be deleted next, at most kListedAtOnce.
  // Returns false if nothing is to be deleted.
  bool take_oldest(std::vector<File>& oldest);
  std::optional<std::filesystem::file_time_type> used_of(const PageKey& key) const;
  void sweep();
  void make_room();
  void make_room_in(const std::shared_ptr<OtherFolder>& other, const std::vector<File>& oldest);
  bool delete_in(const OtherFolder& other, std::span<const File> oldest, uint64_t& num_deleted);

  const std::filesystem::path folder_;
  std::atomic<uint64_t> num_writes_{0};  // those that were begun
  FolderLock use_;                       // its functions are for any thread
  mutable Mutex mutex_;
  Order order_ HOCKET_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<OtherFolder>> others_ HOCKET_GUARDED_BY(mutex_);  // as list() found
  size_t num_forgotten_ HOCKET_GUARDED_BY(mutex_) = 0;                          // in order_
  std::unordered_map<PageKey, Order::iterator, KeyHash> files_ HOCKET_GUARDED_BY(mutex_);
  std::vector<PageKey> untouched_ HOCKET_GUARDED_BY(mutex_);  // for touch_used()
  int64_t bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  int64_t other_bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  int64_t max_bytes_ HOCKET_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  size_t max_files_ HOCKET_GUARDED_BY(mutex_) = kMaxFiles;
  size_t max_known_ HOCKET_GUARDED_BY(mutex_) = 2 * kMaxFiles;  // max_known of list()
  uint64_t num_evicted_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t num_evicted_others_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t num_damaged_ HOCKET_GUARDED_BY(mutex_) = 0;
};

}  // namespace hocket
