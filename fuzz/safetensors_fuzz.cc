// Fuzzes the header of a safetensors file. Any bytes give a header or an error message, and the
// tensors of an accepted header fill the file exactly.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "compute/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file_bytes = static_cast<int64_t>(size);
  const auto header =
      hocket::parse_safetensors_header(std::as_bytes(std::span(data, size)), file_bytes);
  if (!header) {
    HOCKET_CHECK(!header.error().message.empty());
    return 0;
  }
  int64_t covered = header->data_offset;
  for (const auto& [name, entry] : header->tensors) {
    HOCKET_CHECK(entry.begin >= 0);
    HOCKET_CHECK(entry.begin <= entry.end);
    HOCKET_CHECK(header->data_offset + entry.end <= file_bytes);
    covered += entry.end - entry.begin;
  }
  HOCKET_CHECK(covered == file_bytes);
  return 0;
}
