#include "compute/kv/page_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/heap_bytes.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "compute/kv/open_page_file.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Folders with a page used so recently are kept: their processes may start again.
constexpr std::chrono::hours kRecent{1};
// Time for which the folder of others is held alone. Mounts of other hosts may not see the byte by
// which a process that starts asks for it.
constexpr std::chrono::seconds kMaxAlone{2};

int64_t file_bytes(std::span<const std::byte> page) {
  return std::ssize(page) + static_cast<int64_t>(sizeof(PageHeader));
}

std::unexpected<Error> page_file_error(std::string_view verb, const fs::path& path, int problem) {
  return fail(error(ErrorCode::io, "cannot {} {}: {}", verb, path.string(),
                    std::generic_category().message(problem))
                  .with_fix(problem == ENOSPC || problem == EDQUOT
                                ? "make room there, or lower --kv-cache-dir-gb"
                                : "let this user read and write there, or name another folder")
                  .with_param("kv-cache-dir"));
}

// Returns true if a disk that has this error may be read all the same.
bool is_of_writing(int problem) {
  return problem == EROFS || problem == ENOSPC || problem == EDQUOT;
}

}  // namespace

size_t PageFiles::KeyHash::operator()(const PageKey& key) const noexcept {
  size_t first = 0;
  std::memcpy(&first, key.data(), sizeof first);
  return first;
}

PageFiles::PageFiles(std::filesystem::path folder, FolderLock use)
    : folder_(std::move(folder)), use_(std::move(use)) {
  const MutexLock lock(mutex_);
  untouched_.reserve(kMaxTouched);
}

Result<std::unique_ptr<PageFiles>> PageFiles::open(std::filesystem::path folder) {
  HOCKET_TRY_VOID(check_form_owner(folder));
  const int why = make_private_folder(folder);
  // Another user may have made it a moment ago, below a folder where all may.
  HOCKET_TRY_VOID(check_form_owner(folder));
  if (why != 0 && !is_of_writing(why)) return page_file_error("make the folder", folder, why);
  if (why == 0 && access(folder.c_str(), R_OK | X_OK) != 0)
    return page_file_error("read", folder, errno);
  FolderLock use = FolderLock::begin(folder);
  return std::unique_ptr<PageFiles>(new PageFiles(std::move(folder), std::move(use)));
}

int64_t PageFiles::index_bytes(int64_t num_files) {
  constexpr auto listed = static_cast<int64_t>(sizeof(File));
  return num_files * (listed + node_heap_bytes(sizeof(File)) +
                      node_heap_bytes(sizeof(decltype(files_)::value_type)) + kBucketBytes);
}

void PageFiles::limit(int64_t max_bytes, size_t max_files) {
  {
    const MutexLock lock(mutex_);
    max_bytes_ = max_bytes;
    max_files_ = std::min(max_files, kMaxFiles);
  }
  make_room();
}

int64_t PageFiles::max_bytes() const {
  const MutexLock lock(mutex_);
  return max_bytes_;
}

Result<void> PageFiles::list(size_t max_known) {
  std::vector<File> found;
  std::vector<std::shared_ptr<OtherFolder>> others;
  const auto add_found = [&](std::span<const FoundPage> pages,
                             const std::shared_ptr<OtherFolder>& other) {
    // Other folders may be many, so all of them together are bounded.
    const size_t room = max_known - std::min(found.size(), max_known);
    found.reserve(found.size() + std::min(pages.size(), room));
    for (const FoundPage& page : pages.first(std::min(pages.size(), room)))
      found.push_back({.key = page.key, .bytes = page.bytes, .other = other, .used = page.used});
  };
  std::error_code problem;
  add_found(find_pages(folder_, max_known, problem), nullptr);
  delete_abandoned(folder_);
  for (const fs::path& path : find_idle_folders(folder_)) {
    std::error_code ignored;  // a folder that cannot be listed counts nothing
    const auto pages = find_pages(path, max_known, ignored);
    const auto recent = fs::file_time_type::clock::now() - kRecent;
    if (pages.empty() && was_left_for_lists(path, recent)) {
      if (const auto alone = FolderLock::alone(path)) remove_form(path, *alone);
    } else if (std::ranges::all_of(pages,
                                   [&](const FoundPage& page) { return page.used < recent; })) {
      add_found(pages, others.emplace_back(std::make_shared<OtherFolder>(path)));
    }
  }
  std::ranges::sort(found, std::greater(), &File::used);
  {
    const MutexLock lock(mutex_);
    max_known_ = max_known;
    for (const auto& one : others_) forget(*one);
    others_ = std::move(others);
  }
  for (std::span<const File> left = found; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kListedAtOnce));
    left = left.subspan(some.size());
    const MutexLock lock(mutex_);
    // Those that are known have been used since.
    for (const File& one : some)
      if (order_.size() < max_known &&
          (one.other ? !one.other->is_forgotten : !files_.contains(one.key)))
        add_at(order_.end(), one);
  }
  make_room();
  if (problem && problem != std::errc::no_such_file_or_directory)
    return page_file_error("list", folder_, problem.value());
  return {};
}

std::filesystem::path PageFiles::path_of(const PageKey& key) const {
  return path_of_page(folder_, key);
}

void PageFiles::add(const File& file) {
  drop(file.key);
  add_at(order_.begin(), file);
}

void PageFiles::add_at(Order::iterator place, const File& file) {
  const auto added = order_.insert(place, file);
  if (file.other) {
    ++file.other->num_files;
    file.other->bytes += file.bytes;
    other_bytes_ += file.bytes;
  } else {
    files_.emplace(file.key, added);
    bytes_ += file.bytes;
  }
}

void PageFiles::forget(OtherFolder& other) {
  if (std::exchange(other.is_forgotten, true)) return;
  num_forgotten_ += static_cast<size_t>(other.num_files);
  other_bytes_ -= other.bytes;
}

void PageFiles::drop(const PageKey& key) {
  const auto place = files_.find(key);
  if (place == files_.end()) return;
  bytes_ -= place->second->bytes;
  order_.erase(place->second);
  files_.erase(place);
}

bool PageFiles::has(const PageKey& key) {
  const MutexLock lock(mutex_);
  const auto file = files_.find(key);
  if (file == files_.end()) return false;
  order_.splice(order_.begin(), order_, file->second);
  // One that has no room is noted at its next use.
  if (const auto now = fs::file_time_type::clock::now();
      now - file->second->used > kTouchAfter && untouched_.size() < kMaxTouched) {
    file->second->used = now;
    untouched_.push_back(key);
  }
  return true;
}

bool PageFiles::has_untouched() const {
  const MutexLock lock(mutex_);
  return !untouched_.empty();
}

void PageFiles::touch_used() {
  std::vector<PageKey> keys;
  {
    const MutexLock lock(mutex_);
    const auto begin = untouched_.end() - std::min(std::ssize(untouched_), kTouchedOfCall);
    keys.assign(begin, untouched_.end());
    untouched_.erase(begin, untouched_.end());
  }
  for (const PageKey& key : keys)
    utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

// A disk that fails says nothing of the file, so what is known stays.
bool PageFiles::exists(const PageKey& key) {
  const auto known = used_of(key);
  const OpenPageFile file(path_of(key));
  if (!file.is_absent()) {
    if (file.problem() != 0) return false;
    const int64_t size = file.size();
    PageHeader head;
    const int problem = size < 0 ? -1 : file.read(std::as_writable_bytes(std::span(&head, 1)), 0);
    if (problem > 0) return false;
    if (problem == 0 && head.names(key, static_cast<uint64_t>(size) - sizeof head)) return true;
  }
  // A file that was written meanwhile is another one.
  const MutexLock lock(mutex_);
  const auto place = files_.find(key);
  if (place != files_.end() && place->second->used == known) drop(key);
  return false;
}

std::optional<fs::file_time_type> PageFiles::used_of(const PageKey& key) const {
  const MutexLock lock(mutex_);
  const auto place = files_.find(key);
  if (place == files_.end()) return {};
  return place->second->used;
}

bool PageFiles::is_full() const {
  const size_t num_files = order_.size() - num_forgotten_;
  return num_files > 1 && (num_files > max_files_ || bytes_ + other_bytes_ > max_bytes_);
}

bool PageFiles::take_oldest(std::vector<File>& oldest) {
  oldest.clear();
  const MutexLock lock(mutex_);
  if (!is_full()) return false;
  for (size_t i = 0; i < kListedAtOnce && is_full(); ++i) {
    const File last = order_.back();
    const bool is_forgotten = last.other && last.other->is_forgotten;
    if (!is_forgotten && !oldest.empty() && oldest.front().other != last.other) break;
    if (!is_forgotten) oldest.push_back(last);
    if (last.other) {
      order_.pop_back();
      --last.other->num_files;
      last.other->bytes -= last.bytes;
      num_forgotten_ -= is_forgotten ? 1 : 0;
      other_bytes_ -= is_forgotten ? 0 : last.bytes;
    } else {
      drop(last.key);
    }
  }
  return true;
}

// Deletes outside of the lock, since a slow disk must not delay has().
void PageFiles::make_room() {
  use_.try_again();
  std::vector<File> oldest;
  while (take_oldest(oldest)) {
    if (oldest.empty()) continue;
    if (const auto& other = oldest.front().other) {
      make_room_in(other, oldest);
      continue;
    }
    uint64_t num_deleted = 0;  // another process that shares the folder may have been first
    for (const File& file : oldest) num_deleted += unlink(path_of(file.key).c_str()) == 0 ? 1 : 0;
    const MutexLock lock(mutex_);
    num_evicted_ += num_deleted;
  }
}

// Deletes files of a folder until a process begins to use it. That one bounds the folder itself
// from then on, and need not wait until all files are deleted. One whose locks are not seen here
// shows itself by a file that was used since the folder was listed. Returns false if there is one.
bool PageFiles::delete_in(const OtherFolder& other, std::span<const File> oldest,
                          uint64_t& num_deleted) {
  while (true) {
    {
      const auto alone = FolderLock::alone(other.path);
      if (!alone) return false;
      const TimePoint until = RealClock().now() + kMaxAlone;
      for (; !oldest.empty() && RealClock().now() < until; oldest = oldest.subspan(1)) {
        const fs::path path = path_of_page(other.path, oldest.front().key);
        std::error_code gone;
        const auto used = fs::last_write_time(path, gone);
        if (!gone && used != oldest.front().used) return false;
        num_deleted += unlink(path.c_str()) == 0 ? 1 : 0;
        if (alone->is_wanted()) return false;
      }
    }
    if (oldest.empty()) return true;
    std::this_thread::sleep_for(2 * FolderLock::kPollInterval);
  }
}

void PageFiles::make_room_in(const std::shared_ptr<OtherFolder>& other,
                             const std::vector<File>& oldest) {
  uint64_t num_deleted = 0;
  const bool is_theirs = !delete_in(*other, oldest, num_deleted);
  bool is_empty = false, is_first = false;
  {
    const MutexLock lock(mutex_);
    if (is_theirs) forget(*other);
    is_first = num_evicted_others_ == 0 && num_deleted > 0;
    num_evicted_ += num_deleted;
    num_evicted_others_ += num_deleted;
    is_empty = !other->is_forgotten && other->num_files == 0;
  }
  if (is_first)
    log::warning(
        "prefixes in files: all forms of pages below {} together take more than "
        "--kv-cache-dir-gb allows, or are too many files for the index, so files of models or "
        "forms that no process uses are deleted, too, the longest unused first",
        folder_.parent_path().string());
  if (!is_empty) return;
  if (const auto alone = FolderLock::alone(other->path)) remove_form(other->path, *alone);
}

// They count for no limit, so a service that runs for months would keep what killed ones left.
void PageFiles::sweep() {
  const uint64_t number = num_writes_.fetch_add(1);
  if (number % kWritesOfSweep == 0) sweep_part(folder_, number / kWritesOfSweep % kSweepParts);
}

Result<bool> PageFiles::write(const PageKey& key, std::span<const std::byte> page) {
  sweep();
  const PageHeader head = make_page_header(key, page);
  const fs::path path = path_of(key);
  if (const int why = make_folders(folder_, path.parent_path()); why != 0)
    return page_file_error("write in", is_of_writing(why) ? folder_ : path.parent_path(), why);
  const auto write_it = [&] {
    return write_whole_file(path, {std::as_bytes(std::span(&head, 1)), page});
  };
  int problem = write_it();
  if (problem == EISDIR && rmdir(path.c_str()) == 0) problem = write_it();  // it was empty
  if (problem == EISDIR) return false;
  if (problem != 0)
    return page_file_error("write in", is_of_writing(problem) ? folder_ : path, problem);
  {
    const MutexLock lock(mutex_);
    add({.key = key, .bytes = file_bytes(page), .used = fs::file_time_type::clock::now()});
  }
  make_room();
  return true;
}

Result<bool> PageFiles::read(const PageKey& key, std::span<std::byte> page) {
  const fs::path path = path_of(key);
  const auto absent = [&](bool damaged) {
    // If it is gone by now, another process has found and counted it.
    const bool is_counted = damaged && (unlink(path.c_str()) == 0 || errno != ENOENT);
    const MutexLock lock(mutex_);
    num_damaged_ += is_counted ? 1 : 0;
    drop(key);
    return false;
  };
  const OpenPageFile file(path);
  if (file.is_absent()) return absent(file.problem() == ELOOP);
  if (file.problem() != 0) return page_file_error("read in", folder_, file.problem());
  const int64_t size = file.size();
  if (size < 0) return absent(true);
  PageHeader head;
  int problem = file.read(std::as_writable_bytes(std::span(&head, 1)), 0);
  if (problem == 0 && size != file_bytes(page)) {
    // A whole file of another size stays: a peer may ask with a size that is wrong.
    return absent(!head.names(key, static_cast<uint64_t>(size) - sizeof head));
  }
  if (problem == 0) problem = file.read(page, sizeof head);
  if (problem > 0) return page_file_error("read in", folder_, problem);
  if (problem != 0 || !fits(head, key, page)) return absent(true);
  file.touch();  // the order of use outlives the process
  const MutexLock lock(mutex_);
  if (files_.contains(key) || order_.size() < max_known_)
    add({.key = key, .bytes = file_bytes(page), .used = fs::file_time_type::clock::now()});
  return true;
}

PageFiles::Figures PageFiles::figures() const {
  const MutexLock lock(mutex_);
  return {.files = static_cast<int64_t>(files_.size()),
          .bytes = bytes_,
          .other_bytes = other_bytes_,
          .evicted_total = num_evicted_,
          .damaged_total = num_damaged_,
          .evicted_others_total = num_evicted_others_};
}

}  // namespace hocket
