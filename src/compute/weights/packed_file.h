// Packed weights in a file, so that a later start maps them instead of packing them again. A file
// is written under another name and then renamed as a whole; it is never changed afterwards, so
// processes may share it. Opening it checks each field of the header and the size of the file, but
// not the weights: a mapped start saves just the time to read them all.
//
//   byte 0        Header: key, sizes, and a sum over itself
//   byte 2 Mi     the packed weights as WeightLoader laid them out, on a huge page's boundary
//
// Thread: the one that loads; the mapped weights may be read by any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/mapped_files.h"
#include "base/result.h"
#include "base/worker_pool.h"

namespace hocket {

// The complete set of values that the packed bytes depend on.
struct PackedKey {
  uint64_t packing = 0;  // WeightLoader::fingerprint()
  uint64_t source = 0;   // WeightSource::identity()
  int64_t bytes = 0;
};

class PackedFile {
 public:
  // Returns "DIR/MODEL-PACKING.weights": one file for each model, format and share of experts. If
  // the files of a model change, its file is replaced.
  static std::filesystem::path path_in(const std::filesystem::path& folder, std::string_view model,
                                       const PackedKey& key);
  // Maps the file read-only, on 2 MiB pages if the file system has them, and makes the kernel read
  // it, by all workers if there are some. Errors: io (missing or not readable, or another user may
  // write to it), bad_value (says what differs from `key`).
  static Result<PackedFile> open(const std::filesystem::path& path, const PackedKey& key,
                                 WorkerPool* workers = nullptr);

  PackedFile(PackedFile&& other) noexcept;
  PackedFile& operator=(PackedFile&& other) noexcept;
  ~PackedFile();

  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  PackedFile(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  MappedFile named_;
};

// A file that is not written yet. It is locked, and the disk has room for it.   Thread: any, one at
// a time.
class UnfinishedPackedFile {
 public:
  // Creates the folder if it is missing, and removes the unfinished files that killed processes
  // left in it an hour ago or earlier. Returns nullopt if another process is writing the same file.
  // Errors: io, with what to change, also if another user may write to the file.
  static Result<std::optional<UnfinishedPackedFile>> begin(const std::filesystem::path& path,
                                                           const PackedKey& key);
  // Writes the weights and gives the file its name. Without this, or after an error, nothing stays.
  // `stopping` is looked at before each 8 MiB. Errors: io; shutting_down if it was true.
  Result<void> finish(std::span<const std::byte> packed,
                      const std::atomic<bool>* stopping = nullptr);

  UnfinishedPackedFile(UnfinishedPackedFile&& other) noexcept;
  UnfinishedPackedFile& operator=(UnfinishedPackedFile&&) = delete;
  ~UnfinishedPackedFile();

 private:
  UnfinishedPackedFile(std::filesystem::path path, const PackedKey& key, int fd)
      : path_(std::move(path)), key_(key), fd_(fd) {}
  std::filesystem::path fresh() const { return path_.string() + ".new"; }
  std::filesystem::path path_;
  PackedKey key_;
  int fd_ = -1;
};

}  // namespace hocket
