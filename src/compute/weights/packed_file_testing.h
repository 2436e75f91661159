// Writes a file of packed weights in one call. Tests only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "base/result.h"
#include "compute/weights/packed_file.h"

namespace hocket {

// Returns false if another process is writing the same file. Errors: io.
inline Result<bool> write_packed(const std::filesystem::path& path, const PackedKey& key,
                                 std::span<const std::byte> packed) {
  HOCKET_TRY(std::optional<UnfinishedPackedFile> unfinished,
             UnfinishedPackedFile::begin(path, key));
  if (!unfinished) return false;
  HOCKET_TRY_VOID(unfinished->finish(packed));
  return true;
}

}  // namespace hocket
