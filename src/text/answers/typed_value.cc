#include "text/answers/typed_value.h"

#include <algorithm>
#include <optional>

#include "core/bounded_json.h"
#include "text/answers/blank.h"
#include "text/answers/json_copier.h"
#include "text/answers/json_pieces.h"
#include "text/answers/python_literal.h"

namespace hocket {
namespace {

using PlainJson = nlohmann::json;

constexpr int kMaxRefs = 16;  // most references from one schema to the next

ValueKinds both(ValueKinds a, ValueKinds b) {
  return {a.string || b.string, a.number || b.number, a.boolean || b.boolean,
          a.object || b.object, a.array || b.array,   a.null || b.null};
}

ValueKinds kind_of_value(const PlainJson& value) {
  return {.string = value.is_string(),
          .number = value.is_number(),
          .boolean = value.is_boolean(),
          .object = value.is_object(),
          .array = value.is_array(),
          .null = value.is_null()};
}

ValueKinds kind_named(const PlainJson& name) {
  return {.string = name == "string",
          .number = name == "number" || name == "integer",
          .boolean = name == "boolean",
          .object = name == "object",
          .array = name == "array",
          .null = name == "null"};
}

// Reads the kinds of values that schemas of one document allow.
class KindFinder {
 public:
  KindFinder(const PlainJson& root, SchemaVisits& visits) : root_(root), visits_(visits) {}

  // Returns nullopt if the schema says nothing, or if the visits are used up.
  std::optional<ValueKinds> find(const PlainJson& schema) {
    const auto found = kinds_in(schema, 0);
    return visits_.used_up() ? std::nullopt : found;
  }

 private:
  // References may lead to one schema many times over, each time through several others.
  std::optional<ValueKinds> kinds_in(const PlainJson& schema, int depth) {
    if (!visits_.take() || depth > kMaxRefs || !schema.is_object()) return std::nullopt;
    std::optional<ValueKinds> found;
    const auto add = [&](std::optional<ValueKinds> more) {
      if (more) found = found ? both(*found, *more) : *more;
    };
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (type->is_string()) add(kind_named(*type));
      if (type->is_array() && visits_.take_list(type->size()))
        for (const PlainJson& one : *type) add(kind_named(one));
      return found;
    }
    if (const auto values = schema.find("enum");
        values != schema.end() && values->is_array() && visits_.take_list(values->size()))
      for (const PlainJson& value : *values) add(kind_of_value(value));
    if (const auto value = schema.find("const"); value != schema.end()) add(kind_of_value(*value));
    for (const char* word : {"anyOf", "oneOf", "allOf"})
      if (const auto list = schema.find(word); list != schema.end() && list->is_array())
        for (const PlainJson& one : *list) add(kinds_in(one, depth + 1));
    if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
      const auto& path = ref->get_ref<const std::string&>();
      if (const PlainJson* to = visits_.take(path.size()) ? target_of(path) : nullptr)
        add(kinds_in(*to, depth + 1));
    }
    if (!found && schema.contains("properties")) add(ValueKinds{.object = true});
    if (!found && schema.contains("items")) add(ValueKinds{.array = true});
    return found;
  }

  // Walks the path by hand, because nlohmann's pointer throws if it is malformed.
  const PlainJson* target_of(const std::string& path) const {
    if (!path.starts_with("#/")) return nullptr;
    const PlainJson* at = &root_;
    for (size_t begin = 2; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto next = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = next == at->end() ? nullptr : &*next;
      begin = end + 1;
    }
    return at;
  }

  const PlainJson& root_;
  SchemaVisits& visits_;
};

bool allows(ValueKinds kinds, std::string_view json) {
  switch (json.front()) {
    case '{':
      return kinds.object;
    case '[':
      return kinds.array;
    case '"':
      return kinds.string;
    case 't':
    case 'f':
      return kinds.boolean;
    case 'n':
      return kinds.null;
    default:
      return kinds.number;
  }
}

std::optional<std::string> json_in(std::string_view text) {
  JsonCopier copier;
  std::string out;
  for (const char c : text) {
    const auto step = copier.step(c, out);
    if (step != JsonCopier::Step::more && step != JsonCopier::Step::done) return std::nullopt;
  }
  if (!copier.whole()) return std::nullopt;
  return out;
}

}  // namespace

ParameterKinds::ParameterKinds(std::string_view parameters) {
  SchemaVisits visits;
  *this = ParameterKinds(parameters, visits);
}

ParameterKinds::ParameterKinds(std::string_view parameters, SchemaVisits& visits) {
  const PlainJson schema = parse_bounded_json<PlainJson>(parameters);
  if (!schema.is_object()) return;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return;
  KindFinder finder(schema, visits);
  for (const auto& [name, property] : properties->items())
    if (const auto kinds = finder.find(property)) kinds_.emplace(name, *kinds);
}

ValueKinds ParameterKinds::of(std::string_view name, ValueKinds unknown) const {
  const auto found = kinds_.find(name);
  return found == kinds_.end() ? unknown : found->second;
}

std::string typed_json(std::string_view raw, ValueKinds kinds) {
  if (kinds == ValueKinds::only_string()) return quoted_json(raw);
  const std::string_view text = trimmed(raw);
  if (!text.empty()) {
    if (auto json = json_in(text); json && allows(kinds, *json)) return *std::move(json);
    if (auto json = python_to_json(text); json && allows(kinds, *json)) return *std::move(json);
    for (const auto& [word, value] : {std::pair{"TRUE", "true"}, {"FALSE", "false"}})
      if (text == word && kinds.boolean) return value;
  }
  return quoted_json(raw);
}

}  // namespace hocket
