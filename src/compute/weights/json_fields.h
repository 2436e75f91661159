// Typed fields of a JSON object that somebody else wrote. The first error is kept, so a reader goes
// straight down and asks once at the end; after an error every read gives its fallback or zero.
// Null counts as absent, as Python's readers have it. Remembers which keys were read, so that what
// a reader did not know of can be told afterwards. Private to the room.   Thread: one.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

struct Range {
  double min = 0, max = 0;
};

class JsonFields {
 public:
  // `where` opens each message: "config.json" or "config.json: rope_scaling".
  JsonFields(simdjson::dom::object object, std::string where);

  bool has(std::string_view key) const;
  bool is_null(std::string_view key) const;   // there, and null
  bool was_read(std::string_view key) const;  // by one of the typed reads below
  std::vector<std::string> keys() const;
  const std::string& where() const { return where_; }
  // Without a fallback the field must be there.
  int64_t integer(std::string_view key, Range range, std::optional<int64_t> fallback = {});
  double number(std::string_view key, Range range, std::optional<double> fallback = {});
  std::optional<double> number_if(std::string_view key, Range range);
  bool flag(std::string_view key, std::optional<bool> fallback);
  std::string text(std::string_view key, std::optional<std::string_view> fallback);
  // Absent: empty. A single integer where `key` may be either counts as a list of one.
  std::vector<int64_t> integers(std::string_view key, Range range);
  std::vector<std::string> texts(std::string_view key);
  std::optional<JsonFields> object(std::string_view key);
  // The value as JSON text, shortened; empty where absent.
  std::string show(std::string_view key) const;

  void refuse(Error error);
  void absorb(const JsonFields& part);
  Result<void> status() const;

 private:
  std::optional<simdjson::dom::element> find(std::string_view key) const;
  std::optional<simdjson::dom::element> take(std::string_view key);  // and remembers it
  void wrong(std::string_view key, std::string_view wanted);
  void missing(std::string_view key);

  simdjson::dom::object object_;
  std::string where_;
  std::vector<std::string> read_;
  std::optional<Error> error_;
};

// Errors: model_not_found (no such file), bad_config (larger than max_bytes), io.
Result<std::string> read_small_file(const std::filesystem::path& file, int64_t max_bytes);

// A key that occurs twice in `object`, which readers of JSON take differently.
std::optional<std::string> repeated_key(simdjson::dom::object object);

// A foreign name for a message: in quotes, control characters replaced, long ones cut.
std::string shown(std::string_view name);

}  // namespace hocket
