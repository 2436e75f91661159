#include "server/http/json_body.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/nearest_name.h"
#include "server/http/field_recorder.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr size_t kShownBytes = 64;                     // limit of a client's text in a message
constexpr std::string_view kLastRead = "last read: ";  // the parser quotes the input after it

std::string shown_part(std::string_view text) {
  if (text.size() <= kShownBytes) return std::string(text);
  return std::string(text.substr(0, kShownBytes)) + "...";
}

// Builds the tree, and keeps the error that says what is wrong with the body.
class BodyBuilder final : public OrderedTreeBuilder {
 public:
  std::optional<Error> failure;

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // The exception's text is "[json.exception...] parse error at line 1, column 2: syntax error
    // while ...".
    std::string_view what = e.what();
    if (const size_t colon = what.find(": "); colon != what.npos) what.remove_prefix(colon + 2);
    if (what.find("UTF-8") != what.npos)
      return stop(error(ErrorCode::invalid_request, "the body is not UTF-8 at byte {}", position));
    std::string plain(what);
    std::erase_if(plain, [](unsigned char c) { return c < 0x20 || c >= 0x7F; });
    if (const size_t read = plain.find(kLastRead); read != plain.npos)
      plain = plain.substr(0, read) + shown_part(plain.substr(read));
    return stop(
        error(ErrorCode::invalid_request, "the body is not JSON at byte {}: {}", position, plain));
  }

 private:
  bool may_open(size_t depth) override {
    return depth < static_cast<size_t>(kMaxJsonDepth) ||
           stop(error(ErrorCode::invalid_request, "the body is nested deeper than {} levels",
                      kMaxJsonDepth));
  }
  bool may_repeat(const std::string& key) override {
    return stop(error(ErrorCode::invalid_request, "the field '{}' is given twice", shown_part(key))
                    .with_param(shown_part(key)));
  }
  bool stop(Error e) {
    failure = std::move(e);
    return false;
  }
};

// Describes a number's range for FieldRecorder, without infinite limits.
Json described(NumberRange r) {
  Json what = {{"kind", "number"}, {"low", r.low}};
  if (r.low_excluded) what["low_excluded"] = true;
  if (std::isfinite(r.high)) what["high"] = r.high;
  return what;
}

Json described_list(size_t max_size) {
  Json what = {{"kind", "list"}};
  if (max_size < SIZE_MAX) what["entries_max"] = max_size;
  return what;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  BodyBuilder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.tree);
  if (builder.failure) return std::unexpected(std::move(*builder.failure));
  return fail(ErrorCode::invalid_request, "the body is not JSON");
}

Result<Json> parse_json_object(std::string_view text) {
  HOCKET_TRY(Json body, parse_json(text));
  if (!body.is_object())
    return fail(ErrorCode::invalid_request, "the body must be a JSON object, not {}",
                type_name(body));
  return body;
}

Result<Json> parse_json_object(std::string_view text, HeldBytes& held, int copies) {
  const JsonShape shape = json_shape(text);
  if (shape.has_endless_word())
    return fail(ErrorCode::invalid_request,
                "the body is not JSON: a number or a word in it has {} bytes, at most {} are read",
                shape.word_bytes, kMaxJsonWord);
  HOCKET_TRY_VOID(held.grow(shape.tree_bytes * copies));
  return parse_json_object(text);
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
  return to_text(Json(text));
}

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "unknown";
  }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  HOCKET_CHECK(object.is_object());
}

std::string Fields::name_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::get(std::string_view name) {
  known_.push_back(name);
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "any"}});
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::fail(Error e) {
  if (!error_) error_ = std::move(e);
}

void Fields::fail_field(std::string_view name, std::string message, std::string fix) {
  fail(Error{ErrorCode::invalid_request, std::move(message), std::move(fix), name_of(name)});
}

void Fields::wrong_type(std::string_view name, const Json& value, std::string_view wanted) {
  fail_field(name, fmt::format("{} must be {}, not {}", name_of(name), wanted, type_name(value)));
}

bool Fields::read(std::string_view name, bool& out) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "boolean"}});
  const Json* value = get(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return wrong_type(name, *value, "true or false"), false;
  out = value->get<bool>();
  return true;
}

bool Fields::read(std::string_view name, std::string& out) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "string"}});
  const Json* value = get(name);
  if (value == nullptr) return false;
  if (!value->is_string()) return wrong_type(name, *value, "a string"), false;
  out = value->get_ref<const std::string&>();
  return true;
}

bool Fields::read(std::string_view name, double& out, NumberRange range) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), described(range));
  const Json* value = get(name);
  if (value == nullptr) return false;
  if (!value->is_number()) return wrong_type(name, *value, "a number"), false;
  const double v = value->get<double>();
  if (!range.holds(v)) {
    fail_field(name, fmt::format("{} must be {}, not {}", name_of(name), range.text(), v));
    return false;
  }
  out = v;
  return true;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "integer"}, {"low", low}, {"high", high}});
  const Json* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) return wrong_type(name, *value, "an integer"), std::nullopt;
  const bool too_big =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t v = too_big ? INT64_MAX : value->get<int64_t>();
  if (too_big || v < low || v > high) {
    const std::string shown = to_text(*value);
    const bool open_end = high >= INT32_MAX && v < low;  // the upper limit need not be named
    const std::string range =
        open_end ? fmt::format("at least {}", low) : fmt::format("between {} and {}", low, high);
    fail_field(name, fmt::format("{} must be {}, not {}", name_of(name), range, shown));
    return std::nullopt;
  }
  return v;
}

const Json* Fields::object(std::string_view name) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "object"}});
  const Json* value = get(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return wrong_type(name, *value, "an object"), nullptr;
  return value;
}

const Json* Fields::array(std::string_view name, size_t max_size) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), described_list(max_size));
  const Json* value = get(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return wrong_type(name, *value, "a list"), nullptr;
  if (value->size() > max_size) {
    fail_field(name, fmt::format("{} may hold {} entries, not {}", name_of(name), max_size,
                                 value->size()));
    return nullptr;
  }
  return value;
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  known_.insert(known_.end(), names);
  if (auto* recorder = FieldRecorder::current())
    for (const auto name : names) recorder->note(object_, name_of(name), {{"kind", "ignored"}});
}

void Fields::refuse(std::string_view name, std::string_view why, std::string_view fix) {
  if (auto* recorder = FieldRecorder::current())
    recorder->note(object_, name_of(name), {{"kind", "refused"}});
  const Json* value = get(name);
  if (value == nullptr || *value == false || (value->is_array() && value->empty())) return;
  fail_field(name, fmt::format("{} {}", name_of(name), why), std::string(fix));
}

Result<void> Fields::finish() {
  if (error_) return std::unexpected(std::move(*error_));
  for (const auto& [name, value] : object_.items()) {
    if (std::ranges::find(known_, std::string_view(name)) != known_.end()) continue;
    const std::string shown = name_of(shown_part(name));
    Error unknown =
        error(ErrorCode::invalid_request, "unknown field '{}'", shown).with_param(shown);
    if (const auto nearest = nearest_name(name, known_))
      unknown.fix = fmt::format("did you mean '{}'?", *nearest);
    return std::unexpected(std::move(unknown));
  }
  return {};
}

}  // namespace hocket
