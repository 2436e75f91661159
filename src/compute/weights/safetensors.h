// Reads *.safetensors: one file, or a folder with model.safetensors or model.safetensors.index.json
// and its shards. Files are mapped, not copied. A header is checked completely before any tensor is
// offered: length, JSON, types, shapes, offsets that tile the data exactly. Source: docs/models.md,
// "safetensors".   Thread: any (const).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_files.h"
#include "base/result.h"
#include "compute/weights/weight_source.h"

namespace hocket {

struct SafetensorsEntry {
  StoredType type = StoredType::f32;
  std::string type_name;  // dtype as written in the file
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // byte range in the data part
};
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // offset in the file
};

// Parses and checks the header of a file of `file_bytes` bytes; `head` is the beginning of the
// file, at least the whole header. Errors: bad_safetensors with the broken rule. Fuzzed.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   int64_t file_bytes);

class SafetensorsFile final : public WeightSource {
 public:
  // Errors: model_not_found, bad_safetensors (with the path), io.
  static Result<std::unique_ptr<SafetensorsFile>> open(const std::filesystem::path& file);
  ~SafetensorsFile() override;
  Result<StoredTensor> find(std::string_view name) const override;
  bool has(std::string_view name) const override { return header_.tensors.contains(name); }
  std::vector<std::string> names() const override;
  void will_read(const StoredTensor& tensor) const override;
  void done_with(const StoredTensor& tensor) const override;
  // Returns a hash of name, size, modification time, header and 4 KiB in the middle of every
  // tensor. The samples are needed because files of the same shape may have equal times.
  std::optional<uint64_t> identity() const override;

 private:
  SafetensorsFile() = default;
  std::filesystem::path path_;
  SafetensorsHeader header_;
  std::byte* map_ = nullptr;
  int64_t bytes_ = 0;
  MappedFile named_;
  uint64_t identity_ = 0;  // hash without the samples of the data
};

// Opens a model folder: a single file, or shards by index; or a GGUF file (gguf_source.h). Errors:
// as above, and those of GgufFile::open; the message names a missing shard or index entry.
Result<std::unique_ptr<WeightSource>> open_model_weights(const std::filesystem::path& folder);

}  // namespace hocket
