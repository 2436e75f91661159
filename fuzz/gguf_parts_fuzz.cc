// Fuzzes a GGUF file in two parts: four bytes are the length of the first, the second follows. Any
// bytes give an error message, or a model whose tensors lie within their parts and whose identity
// can be computed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_footprints.h"
#include "compute/weights/gguf_source.h"

namespace {

namespace fs = std::filesystem;

const fs::path& folder() {
  static const fs::path made = [] {
    std::string name = (fs::temp_directory_path() / "gguf_parts_XXXXXX").string();
    HOCKET_CHECK(mkdtemp(name.data()) != nullptr);
    return fs::path(name);
  }();
  return made;
}

fs::path write(const char* name, std::string_view bytes) {
  fs::path path = folder() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t first = 0;
  if (size < sizeof(first)) return 0;
  std::memcpy(&first, data, sizeof(first));
  const std::string_view all(reinterpret_cast<const char*>(data) + sizeof(first),
                             size - sizeof(first));
  if (first > all.size()) return 0;
  write("m-00002-of-00002.gguf", all.substr(first));
  auto file = hocket::GgufFile::open(write("m-00001-of-00002.gguf", all.substr(0, first)));
  if (!file) {
    HOCKET_CHECK(!file.error().message.empty());
    return 0;
  }
  size_t tensors = 0;
  for (const hocket::GgufFile::Part& part : (*file)->parts()) {
    HOCKET_CHECK(part.header.data_offset <= std::ssize(part.bytes));
    tensors += part.header.tensors.size();
    for (const auto& [name, tensor] : part.header.tensors)
      HOCKET_CHECK(part.header.data_offset + tensor.end <= std::ssize(part.bytes));
  }
  hocket::most_blocks(**file);
  for (const auto quantize : {hocket::WeightFormat::bf16, hocket::WeightFormat::int4})
    hocket::gguf_footprints(**file, quantize);
  const hocket::GgufWeights weights(*std::move(file));
  HOCKET_CHECK(weights.identity().has_value());
  HOCKET_CHECK(weights.names().size() == tensors);
  HOCKET_CHECK(weights.unread().size() <= tensors);
  return 0;
}
