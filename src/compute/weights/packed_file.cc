#include "compute/weights/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/file_owner.h"
#include "base/log.h"
#include "compute/tensor/view.h"
#include "compute/weights/fingerprint.h"

namespace hocket {
namespace {

// Raise this if the same calls of WeightLoader pack the same tensors into other bytes than before,
// for example with another tile or another rounding. packed_file_test.cc detects such a change.
constexpr uint64_t kPackingLevel = 2;
constexpr uint64_t kMagic = 0x0031'5354'5748'4b48;  // "HKHWTS1" in the file
constexpr int64_t kDataBegin = int64_t{2} << 20;
constexpr int64_t kReadBytes = int64_t{16} << 20;  // bytes that one worker maps at once
// Bytes of one write. File systems with large pages make them as large as a write.
constexpr int64_t kWriteBytes = int64_t{8} << 20;
// Bytes that may wait for the disk, so that stopping the writer never waits for gigabytes.
constexpr int64_t kSyncBytes = int64_t{256} << 20;
constexpr time_t kLeftoverSeconds = 3600;

struct Header {
  uint64_t magic = kMagic;
  uint64_t level = kPackingLevel;
  uint64_t packing = 0, source = 0;
  int64_t data_begin = kDataBegin;
  int64_t data_bytes = 0;
  uint64_t sum = 0;  // sum over the fields above

  uint64_t own_sum() const {
    Fingerprint fields;
    fields.add_all(magic, level, packing, source, data_begin, data_bytes);
    return fields.value();
  }
};
static_assert(std::has_unique_object_representations_v<Header>);
static_assert(std::endian::native == std::endian::little);

Header header_of(const PackedKey& key) {
  Header header{.packing = key.packing, .source = key.source, .data_bytes = key.bytes};
  header.sum = header.own_sum();
  return header;
}

// Closes the descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string reason() {
  return std::error_code(errno, std::generic_category()).message();
}

std::string_view fix_of(int problem) {
  if (problem == EFBIG) return "a larger limit of a file's size (ulimit -f)";
  if (problem == ENOSPC || problem == EDQUOT) return "make room there, or name another folder";
  return "let this user write there, or name another folder";
}

std::unexpected<Error> cannot(std::string_view what, const std::filesystem::path& path) {
  const int problem = errno;
  return fail(error(ErrorCode::io, "cannot {} {}: {}", what, path.string(), reason())
                  .with_fix(std::string(fix_of(problem))));
}

std::unexpected<Error> other(std::string_view what) {
  return fail(ErrorCode::bad_value, "{}", what);
}

Result<void> check_header(int fd, const PackedKey& key, const std::filesystem::path& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return other("it is not a file");
  HOCKET_TRY_VOID(check_owner(path, info));
  Header header;
  if (pread(fd, &header, sizeof header, 0) != ssize_t{sizeof header} || header.magic != kMagic)
    return other("it does not begin as packed weights do");
  if (header.sum != header.own_sum()) return other("its header is damaged");
  if (header.level != kPackingLevel) return other("another version of hocket packed it");
  if (header.packing != key.packing || header.data_begin != kDataBegin ||
      header.data_bytes != key.bytes)
    return other("it holds weights in another form");
  if (header.source != key.source)
    return other("the model's files have changed since it was written");
  if (info.st_size != kDataBegin + key.bytes) return other("it was cut short, or has grown");
  return {};
}

struct FreshFile {
  int fd;
  const std::filesystem::path& path;
  const std::atomic<bool>* stopping;  // null: the writer is not stopped
};

Result<void> write_all(const FreshFile& to, const void* from, int64_t bytes, int64_t offset) {
  const auto* data = static_cast<const std::byte*>(from);
  int64_t unsynced = 0;
  while (bytes > 0) {
    if (to.stopping != nullptr && *to.stopping)
      return fail(ErrorCode::shutting_down, "the server ends before {} is written",
                  to.path.string());
    const ssize_t written = pwrite(to.fd, data, std::min(bytes, kWriteBytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot("write", to.path);
    data += written;
    bytes -= written;
    offset += written;
    unsynced += written;
    if (unsynced < kSyncBytes) continue;
    if (fdatasync(to.fd) != 0) return cannot("write", to.path);
    unsynced = 0;
  }
  return {};
}

// Reserves space, so that a full disk is noticed before gigabytes are written. Not every file
// system supports that.
Result<void> make_room(int fd, const PackedKey& key, const std::filesystem::path& path) {
  if (ftruncate(fd, 0) != 0) return cannot("write", path);
  if (fallocate(fd, 0, kDataBegin, key.bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    return cannot("reserve room for", path);
  return {};
}

Result<void> fill_file(const FreshFile& to, const PackedKey& key,
                       std::span<const std::byte> packed) {
  HOCKET_TRY_VOID(write_all(to, packed.data(), std::ssize(packed), kDataBegin));
  const Header header = header_of(key);
  HOCKET_TRY_VOID(write_all(to, &header, sizeof header, 0));
  if (fsync(to.fd) != 0) return cannot("write", to.path);
  return {};
}

// Maps all pages of a map. Cached pages are mapped at once; others are read in file order and in
// huge pages, and a disk that fails to read reports it here. Kernels before 5.14 read page by page
// later.
Result<void> read_all(std::byte* map, int64_t bytes, WorkerPool* workers) {
  const auto pieces = static_cast<int>((bytes + kReadBytes - 1) / kReadBytes);
  std::atomic<int> problem = 0;
  const auto read = [&](int piece, int) {
    const int64_t begin = piece * kReadBytes;
    if (madvise(map + begin, std::min(kReadBytes, bytes - begin), MADV_POPULATE_READ) != 0 &&
        errno != EINVAL)
      problem = errno;
  };
  if (workers != nullptr) {
    workers->run(pieces, read);
  } else {
    for (int piece = 0; piece < pieces && problem == 0; ++piece) read(piece, 0);
  }
  errno = problem;
  if (problem != 0) return fail(ErrorCode::io, "cannot read it: {}", reason());
  return {};
}

// Another user who has made the file, or may write to it, could change it later, too.
Result<void> check_writer(int fd, const std::filesystem::path& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return cannot("write", path);
  return check_owner(path, info);
}

// Returns true if `fd` is still the file at `path`: the previous owner of the lock may have moved
// it.
bool is_still(int fd, const std::filesystem::path& path) {
  struct stat opened{}, named{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Removes what killed processes left in the folder. A fault is no error: the files cost room only.
void remove_leftovers(const std::filesystem::path& folder) {
  std::error_code problem;
  std::filesystem::directory_iterator it(folder, problem);
  for (const std::filesystem::directory_iterator end; !problem && it != end;
       it.increment(problem)) {
    const std::filesystem::path& path = it->path();
    if (!path.native().ends_with(".weights.new")) continue;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info{};
    if (file.get() < 0 || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (time(nullptr) - info.st_mtime < kLeftoverSeconds) continue;
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0 && is_still(file.get(), path) &&
        unlink(path.c_str()) == 0)
      log::info("weights: deleted {}, the unfinished file of a process that was killed",
                path.string());
  }
}

}  // namespace

std::filesystem::path PackedFile::path_in(const std::filesystem::path& folder,
                                          std::string_view model, const PackedKey& key) {
  std::string name(model.substr(0, 100));
  std::ranges::replace(name, '/', '-');
  return folder / fmt::format("{}-{:016x}.weights", name.empty() ? "model" : name, key.packing);
}

Result<PackedFile> PackedFile::open(const std::filesystem::path& path, const PackedKey& key,
                                    WorkerPool* workers) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    return fail(ErrorCode::io, "{}", errno == ENOENT ? "there is no such file yet" : reason());
  HOCKET_TRY_VOID(check_header(file.get(), key, path));
  // The mapping starts on a huge-page boundary in memory as in the file; otherwise no huge page
  // could be mapped.
  const int64_t reserved = key.bytes + kDataBegin;
  void* start =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return fail(ErrorCode::io, "cannot map it: {}", reason());
  const auto begin = reinterpret_cast<uintptr_t>(start);
  const auto data = static_cast<uintptr_t>(round_up(static_cast<int64_t>(begin), kDataBegin));
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const auto mapped = round_up(key.bytes, page);
  void* map = mmap(reinterpret_cast<void*>(data), mapped, PROT_READ, MAP_SHARED | MAP_FIXED,
                   file.get(), kDataBegin);
  if (map == MAP_FAILED) {
    const std::string why = reason();
    munmap(start, reserved);
    return fail(ErrorCode::io, "cannot map it: {}", why);
  }
  if (data > begin) munmap(start, data - begin);
  const uintptr_t end = begin + round_up(reserved, page);
  if (end > data + mapped) munmap(reinterpret_cast<void*>(data + mapped), end - data - mapped);
  PackedFile packed(static_cast<std::byte*>(map), key.bytes);
  packed.named_ = MappedFile(map, static_cast<size_t>(mapped), path.string());
  madvise(map, mapped, MADV_HUGEPAGE);
  HOCKET_TRY_VOID(read_all(static_cast<std::byte*>(map), mapped, workers));
  return packed;
}

Result<std::optional<UnfinishedPackedFile>> UnfinishedPackedFile::begin(
    const std::filesystem::path& path, const PackedKey& key) {
  std::error_code problem;
  std::filesystem::create_directories(path.parent_path(), problem);
  if (problem) {
    errno = problem.value();
    return cannot("make the folder", path.parent_path());
  }
  remove_leftovers(path.parent_path());
  const std::filesystem::path fresh = path.string() + ".new";
  constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int made = ::open(fresh.c_str(), kFlags | O_CREAT | O_EXCL, 0644);
  const bool is_new = made >= 0;
  Descriptor file(!is_new && errno == EEXIST ? ::open(fresh.c_str(), kFlags) : made);
  if (file.get() < 0) return cannot("write", fresh);
  // Some file systems give each file to another user, or let all write to it.
  if (const auto checked = check_writer(file.get(), fresh); !checked) {
    if (is_new) unlink(fresh.c_str());
    return fail(checked.error());
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    return cannot("lock", fresh);
  }
  if (!is_still(file.get(), fresh)) return std::nullopt;
  UnfinishedPackedFile unfinished(path, key, file.release());
  HOCKET_TRY_VOID(make_room(unfinished.fd_, key, fresh));
  return unfinished;
}

Result<void> UnfinishedPackedFile::finish(std::span<const std::byte> packed,
                                          const std::atomic<bool>* stopping) {
  HOCKET_CHECK(std::ssize(packed) == key_.bytes);
  const std::filesystem::path written = fresh();
  HOCKET_TRY_VOID(fill_file({.fd = fd_, .path = written, .stopping = stopping}, key_, packed));
  if (rename(written.c_str(), path_.c_str()) != 0) return cannot("write", path_);
  close(std::exchange(fd_, -1));
  return {};
}

UnfinishedPackedFile::UnfinishedPackedFile(UnfinishedPackedFile&& other) noexcept
    : path_(std::move(other.path_)), key_(other.key_), fd_(std::exchange(other.fd_, -1)) {}

UnfinishedPackedFile::~UnfinishedPackedFile() {
  if (fd_ < 0) return;
  unlink(fresh().c_str());
  close(fd_);
}

PackedFile::PackedFile(PackedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      named_(std::move(other.named_)) {}

PackedFile& PackedFile::operator=(PackedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  named_ = std::move(other.named_);
  return *this;
}

PackedFile::~PackedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace hocket
