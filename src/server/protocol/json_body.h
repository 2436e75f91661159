// A request's body: bytes to a JSON tree, and a tree to typed values with errors that name the
// field. Nothing here throws.   Thread: any.
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

// Errors: invalid_request, with the byte at which the text is not UTF-8 or not JSON, or if a key
// stands twice in one object, the text is nested deeper than kJsonDepthMax or a number is beyond a
// double.
Result<Json> parse_json(std::string_view text);
// The same for a body, which must be an object.
Result<Json> parse_json_object(std::string_view text);
// Copies of a conversation that exist at once: the tree, a chat body made of it, the input of the
// template, and the prompt's text.
inline constexpr int kConversationCopies = 4;
// The same for a client's body. First counts the memory of `copies` trees in `held`.
// Errors: also those of HeldBytes::grow, and invalid_request for a number or a word of more than
// kJsonWordMax bytes.
Result<Json> parse_json_object(std::string_view text, HeldBytes& held, int copies = 1);

// Text of a tree; bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);
// `text` as a JSON string, quotes included, for answers that are put together by hand.
std::string json_string(std::string_view text);

// Reads one object, field by field. The first thing wrong is kept and what follows it is ignored,
// so that reading is a plain list of calls; finish() tells. A field that is null counts as absent.
class Fields {
 public:
  // `path` is how errors name the object: "" for the body, "stream_options" for that field.
  explicit Fields(const Json& object, std::string path = {});

  // Each returns whether the field was there and good; `out` is untouched otherwise.
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
  // The field as it is; null where absent.
  const Json* get(std::string_view name);
  // A field with an object (or, for array(), a list) in it.
  const Json* object(std::string_view name);
  const Json* array(std::string_view name, size_t size_max);

  // Fields that do no harm: accepted whatever they hold.
  void ignore(std::initializer_list<std::string_view> names);
  // A known field that we cannot serve: an error where it is set to anything but false or [].
  void refuse(std::string_view name, std::string_view why, std::string_view fix = {});
  // Something wrong that only the caller can see.
  void fail(Error e);
  void fail_field(std::string_view name, std::string message, std::string fix = {});

  bool ok() const { return !error_; }
  std::string name_of(std::string_view name) const;  // with the path
  // The first error; else one for the first field that nobody asked for, with the nearest known.
  Result<void> finish();
  // The same, with what was read.
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

// "a string", "null", ... for messages.
std::string_view type_name(const Json& value);

}  // namespace hocket
