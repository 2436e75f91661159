#include "text/grammar/bare_key_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "core/ordered_tree.h"
#include "text/answers/bare_key_value.h"
#include "text/answers/call_reader.h"
#include "text/grammar/schema_texts.h"
#include "text/grammar/spellings.h"

namespace hocket {
namespace {

constexpr int kMaxBareDepth = 64;
constexpr std::string_view kSoManyBytes = "come to a grammar of too many bytes";

class BareKeyWriter {
 public:
  using Plain = nlohmann::json;

  BareKeyWriter(const Tool& tool, LarkWriter& lark, SchemaVisits& visits)
      : tool_(tool),
        lark_(lark),
        visits_(visits),
        root_(tool.parameters.empty() ? Plain{{"additionalProperties", false}}
                                      : Plain::parse(tool.parameters, nullptr, false)),
        texts_(root_, TextSpelling::plain, visits) {}

  std::string any() { return several(any_pair()); }

  Result<std::string> of_schema() {
    if (!root_.is_object()) return refuse("are no JSON schema of an object");
    const Plain& root = texts_.resolved(root_);
    for (const char* word : {"anyOf", "oneOf", "allOf"})
      if (root.contains(word) && !root.contains("properties"))
        return refuse(fmt::format(
            "are no list of properties but {}, and this model writes arguments one by one", word));
    if (root.contains("properties") && !can_write_keys(root))
      return refuse("have properties that this model cannot write");
    return inside(root, 0);
  }

 private:
  std::unexpected<Error> refuse(std::string_view what) const {
    return refuse_parameters(tool_, what);
  }

  static std::string several(std::string_view one) {
    return fmt::format("({0} (\",\" {0})*)?", one);
  }

  // Pieces for any key with any value, and for any value.
  std::string any_pair() {
    const std::string value = any_value();
    if (any_pair_.empty())
      any_pair_ = lark_.rule(fmt::format("{} \":\" {}", lark_.regex(kAnyKey), value));
    return any_pair_;
  }
  std::string any_value() {
    if (!any_value_.empty()) return any_value_;
    any_value_ = lark_.new_name();
    const std::string word = lark_.schema(R"({"type":["number","boolean","null"]})");
    lark_.define(any_value_, fmt::format(R"({} | {} | "[" {} "]" | "{{" {} "}}")",
                                         text({std::string(kAnything), false}), word,
                                         several(any_value_), several(any_pair())));
    return any_value_;
  }

  std::string text(const TextRegex& of) {
    static const std::string kHoldsMark = "(?s:.*)" + regex_of_text(kTextMark) + "(?s:.+)";
    return fmt::format("{} {}", lark_.text(kTextMark),
                       lark_.text_then({of.regex, {kHoldsMark}}, kTextMark));
  }

  static bool has_only(const Plain& schema, std::initializer_list<std::string_view> words) {
    static constexpr std::string_view kRemarks[] = {"type",     "title", "description", "default",
                                                    "examples", "$defs", "definitions"};
    for (const auto& [word, unused] : schema.items())
      if (std::ranges::find(kRemarks, word) == std::end(kRemarks) &&
          std::ranges::find(words, word) == words.end())
        return false;
    return true;
  }

  static bool can_write_keys(const Plain& schema) {
    const Plain& properties = schema["properties"];
    if (!properties.is_object()) return false;
    for (const auto& [name, unused] : properties.items())
      if (name.empty() || name.size() > kMaxCallNameBytes ||
          name.find_first_of(" \t\r\n:=,{}()[]<>|\"'") != name.npos)
        return false;
    return true;
  }

  // Returns a piece for what is between the braces of an object.
  Result<std::string> inside(const Plain& schema, int depth) {
    const auto properties = schema.find("properties");
    if (properties == schema.end()) {
      const auto others = schema.find("additionalProperties");
      if (others == schema.end() || *others == true) return any();
      if (*others == false) return "";
      HOCKET_TRY(const std::string value, value_of(*others, depth + 1));
      return several(lark_.rule(fmt::format("{} \":\" {}", lark_.regex(kAnyKey), value)));
    }
    std::set<std::string_view> required;
    if (const auto list = schema.find("required"); list != schema.end() && list->is_array()) {
      if (!visits_.take_list(list->size())) return refuse(kSoManySchemas);
      for (const Plain& name : *list)
        if (name.is_string()) required.insert(name.get_ref<const std::string&>());
    }
    std::vector<ListedRule> pairs;
    for (const auto& [name, property] : properties->items()) {
      HOCKET_TRY(const std::string value, value_of(property, depth + 1));
      pairs.push_back({lark_.rule(fmt::format("{} {}", lark_.text(name + ":"), value)),
                       required.contains(name)});
    }
    return lark_.in_order(pairs, ",");
  }

  // Each schema becomes one rule, so that one that leads to itself ends.
  Result<std::string> value_of(const Plain& given, int depth) {
    if (!visits_.take()) return refuse(kSoManySchemas);
    if (depth > kMaxBareDepth)
      return refuse(fmt::format("nest deeper than {} levels", kMaxBareDepth));
    if (lark_.num_bytes() > kMaxGrammarBytes) return refuse(kSoManyBytes);
    const Plain& schema = texts_.resolved(given);
    if (!schema.is_object() || schema.empty()) return any_value();
    const auto [known, fresh] = rules_.try_emplace(&schema);
    std::string& name = known->second;
    if (!fresh) return name;
    name = lark_.new_name();
    HOCKET_TRY(const std::string body, body_of(schema, depth));
    lark_.define(name, body);
    return name;
  }

  Result<std::string> body_of(const Plain& schema, int depth) {
    for (const char* word : {"anyOf", "oneOf"})
      if (const auto list = schema.find(word);
          list != schema.end() && list->is_array() && !list->empty() && has_only(schema, {word}))
        return one_of(*list, depth);
    if (schema.contains("enum") || schema.contains("const")) return listed(schema);
    const auto type = schema.find("type");
    if (type == schema.end())
      return schema.contains("properties") ? of_type(schema, "object", depth)
             : schema.contains("items")    ? of_type(schema, "array", depth)
             : has_only(schema, {})        ? Result<std::string>(any_value())
                                           : as_json(schema);
    if (type->is_string()) return of_type(schema, type->get_ref<const std::string&>(), depth);
    constexpr size_t kTypes = 7;  // as many as JSON has
    if (!type->is_array() || type->empty() || type->size() > kTypes) return as_json(schema);
    std::string all;
    for (const Plain& one : *type) {
      if (!one.is_string()) return as_json(schema);
      HOCKET_TRY(const std::string piece,
                 of_type(schema, one.get_ref<const std::string&>(), depth));
      all += (all.empty() ? "" : " | ") + piece;
    }
    return all;
  }

  Result<std::string> one_of(const Plain& list, int depth) {
    std::string all;
    for (const Plain& one : list) {
      HOCKET_TRY(const std::string piece, value_of(one, depth + 1));
      all += (all.empty() ? "" : " | ") + piece;
    }
    return all;
  }

  Result<std::string> listed(const Plain& schema) {
    const auto one = schema.find("const");
    const Plain& values = one == schema.end() ? schema["enum"] : *one;
    const size_t num = one == schema.end() && values.is_array() ? values.size() : 1;
    if (!visits_.take_list(num)) return refuse(kSoManySchemas);
    if (const auto texts = texts_.regex_of(schema)) return text(*texts);
    std::string all;
    for (size_t i = 0; i < num; ++i) {
      if (lark_.num_bytes() > kMaxGrammarBytes) return refuse(kSoManyBytes);
      const Plain& value = one == schema.end() && values.is_array() ? values[i] : values;
      if (!all.empty()) all += " | ";
      if (value.is_string())
        all += text({regex_of_text(value.get_ref<const std::string&>()), true});
      else
        all += lark_quoted(value.dump(-1, ' ', false, Plain::error_handler_t::replace));
    }
    return all.empty() ? as_json(schema) : all;
  }

  Result<std::string> of_type(const Plain& schema, std::string_view type, int depth) {
    if (type == "string") {
      const auto regex = texts_.regex_of(schema);
      if (visits_.used_up()) return refuse(kSoManySchemas);
      if (!regex) return refuse("limit a text in a way that cannot be checked without quotes");
      return text(*regex);
    }
    if (type == "array" && has_only(schema, {"items"})) {
      std::string item = any_value();
      if (const auto items = schema.find("items"); items != schema.end()) {
        HOCKET_TRY(item, value_of(*items, depth + 1));
      }
      return fmt::format(R"("[" {} "]")", several(item));
    }
    if (type == "object" && has_only(schema, {"properties", "required", "additionalProperties"}) &&
        (!schema.contains("properties") || can_write_keys(schema))) {
      HOCKET_TRY(const std::string pairs, inside(schema, depth));
      return fmt::format(R"("{{" {} "}}")", pairs);
    }
    Plain alone = schema;
    alone["type"] = type;
    return as_json(alone);
  }

  // The schema together with the definitions to which its references may point.
  std::string as_json(const Plain& schema) {
    Plain whole = schema;
    for (const char* name : {"$defs", "definitions"})
      if (const auto found = root_.find(name); found != root_.end() && !whole.contains(name))
        whole[name] = *found;
    return lark_.schema(whole.dump(-1, ' ', false, Plain::error_handler_t::replace));
  }

  const Tool& tool_;
  LarkWriter& lark_;
  SchemaVisits& visits_;
  Plain root_;
  SchemaTexts texts_;
  std::map<const Plain*, std::string> rules_;  // by schema
  std::string any_pair_, any_value_;
};

}  // namespace

Result<std::string> bare_key_rules(const Tool& tool, ArgumentCheck will, LarkWriter& lark,
                                   SchemaVisits& visits) {
  BareKeyWriter writer(tool, lark, visits);
  if (will == ArgumentCheck::any) return writer.any();
  return writer.of_schema();
}

}  // namespace hocket
