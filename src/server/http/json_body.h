// Parses a request's body into a JSON tree, and reads typed values from the tree with errors that
// name the field. No function throws.   Thread: any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/bounded_json.h"
#include "core/request_bounds.h"

namespace hocket {

class HeldBytes;

using Json = nlohmann::ordered_json;

// Errors: invalid_request if the text is not UTF-8 or not JSON (with the byte), a key occurs twice
// in one object, the text is nested deeper than kMaxJsonDepth or a number is beyond a double.
Result<Json> parse_json(std::string_view text);
// Like parse_json, but the text must be an object.
Result<Json> parse_json_object(std::string_view text);
// Number of copies of a conversation that exist at once: the tree, a chat body made of it, the
// input of the template, and the prompt's text.
inline constexpr int kConversationCopies = 4;
// The same for a client's body: first counts the memory of `copies` trees in `held`. Errors: also
// those of HeldBytes::grow, and invalid_request for a number or a word of more than kMaxJsonWord
// bytes.
Result<Json> parse_json_object(std::string_view text, HeldBytes& held, int copies = 1);

// Returns the tree as text; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);
// Returns `text` as a JSON string with quotes, for answers that are written without a tree.
std::string json_string(std::string_view text);

// Reads one object, field by field. Keeps the first error and ignores the ones after it, so that a
// parser is a plain list of calls; finish() returns that error. A field that is null counts as
// absent.
class Fields {
 public:
  // `path` names the object in errors: "" for the body, "stream_options" for that field.
  explicit Fields(const Json& object, std::string path = {});

  // Each read() returns true if the field is there and valid; otherwise `out` is unchanged.
  bool read(std::string_view name, bool& out);
  bool read(std::string_view name, std::string& out);
  template <class Int>
    requires std::is_integral_v<Int>
  bool read(std::string_view name, Int& out, int64_t low, int64_t high) {
    const std::optional<int64_t> v = integer(name, low, high);
    if (v) out = static_cast<Int>(*v);
    return v.has_value();
  }
  bool read(std::string_view name, double& out, NumberRange range);
  // Returns the field as it is; null if absent.
  const Json* get(std::string_view name);
  // Returns a field that holds an object, or for array() a list of at most `max_size`; null if
  // absent or wrong.
  const Json* object(std::string_view name);
  const Json* array(std::string_view name, size_t max_size);

  // Accepts these fields with any value and ignores them.
  void ignore(std::initializer_list<std::string_view> names);
  // Rejects a known field that is not supported: an error if it is set to anything but false or [].
  void refuse(std::string_view name, std::string_view why, std::string_view fix = {});
  // Records an error that only the caller can find.
  void fail(Error e);
  void fail_field(std::string_view name, std::string message, std::string fix = {});

  bool ok() const { return !error_; }
  std::string name_of(std::string_view name) const;  // with the path of the object
  // Returns the first error; else an error for the first field that was not read, with the nearest
  // name.
  Result<void> finish();
  // Like finish(), but returns `value` if there is no error.
  template <class T>
  Result<T> finish_with(T value) {
    if (auto done = finish(); !done) return std::unexpected(std::move(done).error());
    return value;
  }

 private:
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  void wrong_type(std::string_view name, const Json& value, std::string_view wanted);

  const Json& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

// Returns "a string", "null", ... for messages.
std::string_view type_name(const Json& value);

}  // namespace hocket
