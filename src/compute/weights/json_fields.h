// Typed fields of a JSON object from a foreign file. The first error is kept, so a reader reads all
// fields and asks for status() once at the end; after an error every read returns its fallback or
// zero. Null counts as absent, as in Python's readers. The object remembers the keys that were
// read, so a caller can report the unknown ones. Private to the room.   Thread: one.
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
  // `where` begins each message: "config.json" or "config.json: rope_scaling".
  JsonFields(simdjson::dom::object object, std::string where);

  bool has(std::string_view key) const;
  bool is_null(std::string_view key) const;   // the key exists and is null
  bool was_read(std::string_view key) const;  // true if a typed read below asked for it
  std::vector<std::string> keys() const;
  const std::string& where() const { return where_; }
  // Return the value or the fallback. Without a fallback the field is required.
  int64_t integer(std::string_view key, Range range, std::optional<int64_t> fallback = {});
  double number(std::string_view key, Range range, std::optional<double> fallback = {});
  std::optional<double> number_if(std::string_view key, Range range);
  bool flag(std::string_view key, std::optional<bool> fallback);
  std::string text(std::string_view key, std::optional<std::string_view> fallback);
  // Return an empty list if the key is absent or refused, so each entry is in `range`. A single
  // number is read as a list of one.
  std::vector<int64_t> integers(std::string_view key, Range range);
  // An entry of null is `for_null`, or refused without it.
  std::vector<double> numbers(std::string_view key, Range range,
                              std::optional<double> for_null = {});
  std::vector<std::string> texts(std::string_view key);
  std::optional<JsonFields> object(std::string_view key);
  // Returns the value as JSON text, shortened; empty if the key is absent.
  std::string show(std::string_view key) const;

  void refuse(Error error);
  void absorb(const JsonFields& part);
  Result<void> status() const;

 private:
  std::optional<simdjson::dom::element> find(std::string_view key) const;
  std::optional<simdjson::dom::element> take(std::string_view key);  // also remembers the key
  void wrong(std::string_view key, std::string_view wanted);
  void missing(std::string_view key);

  simdjson::dom::object object_;
  std::string where_;
  std::vector<std::string> read_;
  std::optional<Error> error_;
};

// Errors: model_not_found (no such file), bad_config (larger than max_bytes), io.
Result<std::string> read_small_file(const std::filesystem::path& file, int64_t max_bytes);

// Returns a key that occurs twice in `object`; JSON readers disagree on such keys.
std::optional<std::string> repeated_key(simdjson::dom::object object);

// Formats a foreign name for a message: quoted, control characters replaced, long names cut.
std::string shown(std::string_view name);

}  // namespace hocket
