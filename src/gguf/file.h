// A model in GGUF: one file, or the parts NAME-00001-of-00004.gguf of one. Files are mapped, not
// copied, and their headers are checked completely.   Thread: any (const).
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_files.h"
#include "base/result.h"
#include "gguf/header.h"

namespace hocket {

class GgufFile {
 public:
  // `path` names the file, or any part. Errors: model_not_found, io, those of parse_gguf_header
  // (with the path); ErrorCode::bad_gguf if the parts do not belong together. With
  // GgufExtent::header, the data of tensors may be absent.
  static Result<std::unique_ptr<const GgufFile>> open(const std::filesystem::path& path,
                                                      GgufExtent extent = GgufExtent::whole);
  ~GgufFile();

  struct Part {
    std::filesystem::path path;
    std::span<const std::byte> bytes;  // the whole file
    int64_t changed_ns = 0;            // its modification time
    GgufHeader header;
    MappedFile named;
  };
  const std::vector<Part>& parts() const { return parts_; }
  const std::filesystem::path& path() const { return parts_.front().path; }
  // The metadata of the first part, which has those of the model.
  const GgufMetadata& metadata() const { return parts_.front().header.metadata; }

  struct TensorData {
    const GgufTensor* tensor = nullptr;  // null: no part holds it
    const std::byte* data = nullptr;     // null: the file ends before it (GgufExtent::header)
  };
  TensorData find(std::string_view name) const;

 private:
  GgufFile() = default;
  Result<void> add(const std::filesystem::path& path, GgufExtent extent);
  Result<void> add_other_parts(GgufExtent extent);
  std::vector<Part> parts_;
};

// Returns the models that lie in a folder as GGUF files, by name: files in one, and first parts. If
// the folder cannot be read to its end, those that were read.
std::vector<std::filesystem::path> gguf_models_in(const std::filesystem::path& folder);

// Returns the GGUF file that `path` names: itself, if its name ends in ".gguf" or it begins as such
// a file; the one in it, if it is a folder without config.json with one such model. Else empty.
std::filesystem::path gguf_file_of(const std::filesystem::path& path);

}  // namespace hocket
