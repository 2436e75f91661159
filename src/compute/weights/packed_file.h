// Packed weights kept in a file, so that a later start maps them instead of packing them again. A
// file is written beside its name and moved there whole; nobody changes it afterwards, so that
// processes may share it. What is checked when it is opened: the header, each field of it, and the
// size of the file. The weights themselves are not: reading them all is what a mapped start saves.
//
//   byte 0        Header: key, sizes, and a sum over itself
//   byte 2 Mi     the packed weights as WeightLoader laid them out, on a huge page's boundary
//
// Thread: the one that loads; what is mapped, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/mapped_files.h"
#include "base/result.h"

namespace hocket {

// What the packed bytes depend on, and nothing else.
struct PackedKey {
  uint64_t packing = 0;  // WeightLoader::fingerprint()
  uint64_t source = 0;   // WeightSource::identity()
  int64_t bytes = 0;
};

class PackedFile {
 public:
  // "DIR/MODEL-PACKING.weights": one file for each model, format and share of experts. A model
  // whose files have changed takes the place of what it was.
  static std::filesystem::path path_in(const std::filesystem::path& folder, std::string_view model,
                                       const PackedKey& key);
  // Maps it read-only, on 2 MiB pages where the file system has them, and has the kernel read it.
  // Errors: io (nothing there, not readable), bad_value with what is not as `key` says.
  static Result<PackedFile> open(const std::filesystem::path& path, const PackedKey& key);
  // Makes the folder where it is missing. Errors: io, with what to change. Where another process is
  // writing the same file, it is left to that one: false.
  static Result<bool> write(const std::filesystem::path& path, const PackedKey& key,
                            std::span<const std::byte> packed);

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

}  // namespace hocket
