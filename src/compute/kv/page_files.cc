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
#include <utility>
#include <vector>

#include "base/whole_file.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr size_t kListedAtOnce = 1024;  // so that has() never waits for long

int64_t file_bytes(std::span<const std::byte> page) {
  return std::ssize(page) + static_cast<int64_t>(sizeof(PageSeal));
}

class OpenPageFile {
 public:
  explicit OpenPageFile(int fd) : fd_(fd) {}
  ~OpenPageFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenPageFile(const OpenPageFile&) = delete;
  OpenPageFile& operator=(const OpenPageFile&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

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

std::optional<PageKey> key_of_name(std::string_view name) {
  PageKey key;
  if (name.size() != 2 * key.size()) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < key.size(); ++i) {
    const int high = digit(name[2 * i]), low = digit(name[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return key;
}

// Reads all bytes at an offset. Returns 0, or the error's number; -1: the file ends.
int read_all(int fd, std::span<std::byte> bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t read = pread(fd, bytes.data(), bytes.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return read < 0 ? errno : -1;
    bytes = bytes.subspan(static_cast<size_t>(read));
    offset += read;
  }
  return 0;
}

// Makes the folder and those above it. Nobody else may read what clients wrote. Returns the error's
// number, or 0.
int make_private_folder(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) return problem.value();
  // A folder of another user stays as it is, which open() finds out.
  fs::permissions(folder, fs::perms::owner_all, problem);
  return 0;
}

// Makes `below`, and `folder` around it if it was deleted while the server runs. Returns the
// error's number, or 0.
int make_folders(const fs::path& folder, const fs::path& below) {
  if (mkdir(below.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return errno;
  if (const int why = make_private_folder(folder); why != 0) return why;
  return mkdir(below.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

size_t PageFiles::KeyHash::operator()(const PageKey& key) const noexcept {
  size_t first = 0;
  std::memcpy(&first, key.data(), sizeof first);
  return first;
}

PageFiles::PageFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

Result<std::unique_ptr<PageFiles>> PageFiles::open(std::filesystem::path folder) {
  const int why = make_private_folder(folder);
  if (why != 0 && !is_of_writing(why)) return page_file_error("make the folder", folder, why);
  if (why == 0 && access(folder.c_str(), R_OK | X_OK) != 0)
    return page_file_error("read", folder, errno);
  return std::unique_ptr<PageFiles>(new PageFiles(std::move(folder)));
}

void PageFiles::limit(int64_t max_bytes) {
  {
    const MutexLock lock(mutex_);
    max_bytes_ = max_bytes;
  }
  make_room();
}

Result<void> PageFiles::list() {
  struct Found {
    fs::file_time_type used;
    File file;
  };
  std::vector<Found> found;
  std::error_code problem;
  fs::recursive_directory_iterator entries(folder_, problem);
  for (; !problem && entries != fs::recursive_directory_iterator(); entries.increment(problem)) {
    if (entries.depth() > 0) entries.disable_recursion_pending();
    std::error_code gone;  // another process may have deleted it
    const auto used = entries->last_write_time(gone);
    const std::string name = entries->path().filename();
    if (gone || !entries->is_regular_file(gone)) continue;
    const auto bytes = static_cast<int64_t>(entries->file_size(gone));
    if (is_abandoned_file(entries->path())) fs::remove(entries->path(), gone);
    const auto key = key_of_name(name);
    if (key && path_of(*key) == entries->path() && found.size() < 2 * kMaxFiles)
      found.push_back({used, {*key, bytes}});
  }
  if (problem && problem != std::errc::no_such_file_or_directory)
    return page_file_error("list", folder_, problem.value());
  std::ranges::sort(found, std::greater(), &Found::used);
  for (std::span<const Found> left = found; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kListedAtOnce));
    left = left.subspan(some.size());
    const MutexLock lock(mutex_);
    // Those that are known have been used since.
    for (const Found& one : some)
      if (!files_.contains(one.file.key)) add_at(order_.end(), one.file);
  }
  make_room();
  return {};
}

std::filesystem::path PageFiles::path_of(const PageKey& key) const {
  std::string name;
  for (const uint8_t byte : key) name += fmt::format("{:02x}", byte);
  return folder_ / name.substr(0, 2) / name;
}

void PageFiles::add(const File& file) {
  drop(file.key);
  add_at(order_.begin(), file);
}

void PageFiles::add_at(Order::iterator place, const File& file) {
  files_.emplace(file.key, order_.insert(place, file));
  bytes_ += file.bytes;
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
  return true;
}

bool PageFiles::exists(const PageKey& key) const {
  return access(path_of(key).c_str(), R_OK) == 0;
}

// Deletes outside of the lock, since a slow disk must not hold up has().
void PageFiles::make_room() {
  std::vector<PageKey> oldest;
  {
    const MutexLock lock(mutex_);
    while (files_.size() > 1 && (files_.size() > kMaxFiles || bytes_ > max_bytes_)) {
      oldest.push_back(order_.back().key);
      drop(oldest.back());
      ++num_evicted_;
    }
  }
  for (const PageKey& key : oldest) unlink(path_of(key).c_str());
}

Result<bool> PageFiles::write(const PageKey& key, std::span<const std::byte> page) {
  const PageSeal head = seal_page(key, page);
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
    add({key, file_bytes(page)});
  }
  make_room();
  return true;
}

Result<bool> PageFiles::read(const PageKey& key, std::span<std::byte> page) {
  const fs::path path = path_of(key);
  const auto absent = [&](bool damaged) {
    if (damaged) unlink(path.c_str());
    const MutexLock lock(mutex_);
    num_damaged_ += damaged ? 1 : 0;
    drop(key);
    return false;
  };
  const OpenPageFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ELOOP) return absent(errno == ELOOP);
    return page_file_error("read", path, errno);
  }
  struct stat info{};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return absent(true);
  PageSeal head;
  int problem = read_all(file.get(), std::as_writable_bytes(std::span(&head, 1)), 0);
  if (problem == 0 && info.st_size != file_bytes(page)) {
    // A whole file of another size stays: a peer may ask with a size that is wrong.
    const uint64_t held = static_cast<uint64_t>(info.st_size) - sizeof head;
    return absent(!head.names(key, held));
  }
  if (problem == 0) problem = read_all(file.get(), page, sizeof head);
  if (problem > 0) return page_file_error("read", path, problem);
  if (problem != 0 || !fits(head, key, page)) return absent(true);
  futimens(file.get(), nullptr);  // the order of use outlives the process
  const MutexLock lock(mutex_);
  add({key, file_bytes(page)});
  return true;
}

PageFiles::Figures PageFiles::figures() const {
  const MutexLock lock(mutex_);
  return {.files = static_cast<int64_t>(files_.size()),
          .bytes = bytes_,
          .evicted_total = num_evicted_,
          .damaged_total = num_damaged_};
}

}  // namespace hocket
