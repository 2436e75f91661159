// The header of a GGUF file: metadata and the table of tensors, checked completely before anything
// is offered. Texts and arrays are views into the bytes of the file. Source: docs/models.md,
// "GGUF". Thread: any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "gguf/types.h"

namespace hocket {

struct GgufTensor {
  const GgufType* type = nullptr;
  // Rows last, as GGUF counts: element (.., row, k) has k from 0 to shape.back(). 1 to 4 axes.
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // byte range in the data part
};

class GgufMetadata {
 public:
  // Each returns nullopt if the key is absent, and for a value of another kind. integer() also if
  // the number is not whole or beyond 2^53.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  // Read the list again at every call.
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  bool has(std::string_view key) const { return values_.contains(key); }

 private:
  friend class GgufHeaderReader;
  struct Array {
    uint32_t type = 0;
    uint64_t count = 0;
    std::span<const std::byte> bytes;
  };
  using Value = std::variant<double, bool, std::string_view, Array>;
  std::map<std::string_view, Value> values_;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::map<std::string_view, GgufTensor> tensors;
  // Offset in the file; within it where all of it is there (GgufExtent::whole), or no tensors are.
  int64_t data_offset = 0;
};

// The part of a file that must be there. header: numbers of tensors are not read, so that a model
// can be planned from the first megabytes of its file.
enum class GgufExtent : uint8_t { whole, header };

// Parses and checks the header of a file (mapped, so that its data is not read). Errors:
// ErrorCode::bad_gguf with the broken rule; unsupported_model (version, byte order, a type of
// tensors, by name). Fuzzed.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file,
                                     GgufExtent extent = GgufExtent::whole);

}  // namespace hocket
