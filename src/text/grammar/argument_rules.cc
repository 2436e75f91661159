#include "text/grammar/argument_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/ordered_tree.h"
#include "text/answers/typed_value.h"
#include "text/grammar/argument_style.h"
#include "text/grammar/spellings.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;
using Plain = nlohmann::json;  // finds a key without a search through all keys

constexpr int kSchemaDepthMax = 16;
constexpr std::string_view kAnything = "(?s:.*)";
constexpr std::string_view kAnyKey = "[A-Za-z_][A-Za-z0-9_\\-]{0,63}";
constexpr std::string_view kNoParameters = R"({"type":"object","additionalProperties":false})";

std::string with_entities(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// Only named properties are allowed, unless the schema says otherwise.
std::string with_named_properties_only(const std::string& parameters) {
  Json schema = parse_ordered(parameters);
  if (!schema.is_object() || !schema.contains("properties")) return parameters;
  for (const char* word : {"additionalProperties", "patternProperties", "unevaluatedProperties",
                           "$ref", "allOf", "anyOf", "oneOf"})
    if (schema.contains(word)) return parameters;
  schema["additionalProperties"] = false;
  return schema_text(schema);
}

// The texts that a schema allows, as a regex. `exact`: it does not allow every text.
struct TextRegex {
  std::string regex;
  bool exact = false;
};

class ArgumentWriter {
 public:
  ArgumentWriter(const Tool& tool, ArgumentStyle style, LarkWriter& lark, SchemaVisits& visits)
      : tool_(tool), kind_(style), style_(argument_marks(style)), lark_(lark), visits_(visits) {}

  Result<std::string> any() {
    const std::string key = lark_.regex(kAnyKey);
    if (kind_ == ArgumentStyle::keywords) {
      const std::string one = lark_.rule(fmt::format("{} \"=\" {}", key, lark_.schema("{}")));
      return fmt::format("({0} (\", \" {0})*)?", one);
    }
    const std::string one =
        lark_.rule(fmt::format("{} {} {} {} {}", lark_.text(style_.open), key,
                               lark_.text(style_.middle), any_text(), lark_.text(style_.after)));
    return fmt::format("({})*", one);
  }

  Result<std::string> of_schema() {
    const std::string text =
        tool_.parameters.empty() ? std::string(kNoParameters) : tool_.parameters;
    root_ = parse_ordered(text);
    plain_root_ = Plain::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!root_.is_object()) return refuse("are no JSON schema of an object");
    kinds_ = tool_.kinds ? tool_.kinds : std::make_shared<ParameterKinds>(text);
    read_shared();
    const auto properties = root_.find("properties");
    for (const char* word : {"$ref", "anyOf", "oneOf", "allOf"})
      if (root_.contains(word) && properties == root_.end())
        return refuse(fmt::format(
            "are no list of properties but {}, and this model writes arguments one by one", word));
    if (properties == root_.end())
      return root_.contains("additionalProperties") && root_["additionalProperties"] == false
                 ? Result<std::string>("")
                 : any();
    if (!properties->is_object()) return refuse("have properties that are no object");
    for (const auto& [name, schema] : properties->items()) {
      HOCKET_TRY_VOID(add(name, schema));
      if (visits_.used_up()) return refuse_so_many();
      if (lark_.num_bytes() > kGrammarBytesMax)
        return refuse(
            fmt::format("come to more than {} bytes, as each property is given all definitions",
                        kGrammarBytesMax));
    }
    return kind_ == ArgumentStyle::keywords ? parted_by_commas() : one_after_another();
  }

 private:
  struct Argument {
    std::string rule;
    bool required = false;
  };

  std::unexpected<Error> refuse(std::string_view what) const {
    return fail(error(ErrorCode::invalid_request, "the parameters of the tool {} {}",
                      tool_.name.substr(0, 64), what)
                    .with_fix("leave \"strict\" and tool_choice out, or change the schema")
                    .with_param("tools"));
  }

  std::unexpected<Error> refuse_so_many() const {
    return refuse(fmt::format(
        "have alternatives and references that lead to more than {} schemas, with all tools "
        "before it",
        SchemaVisits::kMax));
  }

  // Reads the parts of the whole schema that its properties need: definitions and required names.
  void read_shared() {
    for (const char* name : {"$defs", "definitions"})
      if (const auto found = root_.find(name); found != root_.end())
        definitions_.emplace_back(name, &*found);
    const auto required = root_.find("required");
    if (required == root_.end() || !required->is_array()) return;
    for (const Json& name : *required)
      if (name.is_string()) required_.insert(name.get<std::string>());
  }

  Result<void> add(const std::string& name, const Json& schema) {
    const bool python = kind_ == ArgumentStyle::keywords;
    const bool bad = name.empty() || name.size() > 256 ||
                     name.find_first_of("<>\n=") != name.npos ||
                     (kind_ == ArgumentStyle::named && name.find('"') != name.npos) ||
                     (python && name.find_first_of(" ()[]{},'\"") != name.npos);
    if (bad) return refuse("have a name that this model cannot write: " + name.substr(0, 64));
    HOCKET_TRY(const std::string value, value_of(name, schema));
    const std::string head = fmt::format("{}{}{}", style_.open, name, style_.middle);
    arguments_.push_back(
        {lark_.rule(fmt::format("{} {} {}", lark_.text(head), value, lark_.text(style_.after))),
         required_.contains(name)});
    return {};
  }

  std::string one_after_another() const {
    std::string all;
    for (const Argument& one : arguments_)
      all += one.required ? one.rule + " " : fmt::format("({})? ", one.rule);
    return all;
  }

  // Built from the last argument on. behind: may follow once an argument has been written. first:
  // may come while none has been written.
  std::string parted_by_commas() {
    std::string behind, first;
    for (size_t i = arguments_.size(); i-- > 0;) {
      const auto& [rule, required] = arguments_[i];
      const std::string then = fmt::format("\", \" {} {}", rule, behind);
      const std::string begun = fmt::format("{} {}", rule, behind);
      const std::string otherwise = first.empty() ? "" : " | " + first;
      first = lark_.rule(
          required ? begun : fmt::format("({}{}){}", begun, otherwise, first.empty() ? "?" : ""));
      behind = lark_.rule(required         ? then
                          : behind.empty() ? fmt::format("({})?", then)
                                           : fmt::format("({} | {})", then, behind));
      may_be_none_ &= !required;
    }
    if (first.empty()) return "";
    return may_be_none_ ? fmt::format("({})?", first) : first;
  }

  std::string any_text() { return text_with({std::string(kAnything), false}); }

  std::string text_with(const TextRegex& text) {
    return lark_.text_then({text.regex, texts_that_end(kind_)},
                           text.exact ? style_.exact_close : style_.close);
  }

  Result<std::string> value_of(const std::string& name, const Json& schema) {
    if (kind_ == ArgumentStyle::keywords) return python_value(name, schema);
    const bool glm =
        kind_ == ArgumentStyle::arg_keys || kind_ == ArgumentStyle::arg_keys_on_one_line;
    const ValueKinds unknown = glm ? ValueKinds::any() : ValueKinds::only_string();
    const ValueKinds kinds = kinds_->of(name, unknown);
    const Plain& plain = plain_root_["properties"][name];
    if (kinds == ValueKinds::only_string()) {
      const auto text = text_regex(plain, 0);
      if (visits_.used_up()) return refuse_so_many();
      if (!text)
        return refuse(fmt::format("limit {} in a way that cannot be checked on text without quotes",
                                  name.substr(0, 64)));
      return text_with(*text);
    }
    if (kinds == ValueKinds::any() || is_text_or_word(plain, 0)) return any_text();
    return fmt::format("{} {}", json_value(schema), lark_.text(style_.exact_close));
  }

  Result<std::string> python_value(const std::string& name, const Json& schema) {
    const ValueKinds kinds = kinds_->of(name, ValueKinds::any());
    const bool listed = schema.is_object() && (schema.contains("enum") || schema.contains("const"));
    if (!listed && kinds == ValueKinds{.boolean = true}) return R"(("True" | "False"))";
    if (!listed && kinds == ValueKinds{.null = true}) return R"("None")";
    return json_value(schema);
  }

  // The schema together with the definitions to which its references may point.
  std::string json_value(const Json& schema) {
    Json whole = schema;
    if (whole.is_object())
      for (const auto& [name, definitions] : definitions_)
        if (!whole.contains(name)) whole[name] = *definitions;
    return lark_.schema(schema_text(whole));
  }

  const Plain& resolved(const Plain& schema) const {
    const Plain* at = &schema;
    for (int i = 0; i < kSchemaDepthMax && at->is_object() && at->contains("$ref"); ++i) {
      const Plain& ref = (*at)["$ref"];
      if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with("#/")) return *at;
      std::string_view path = std::string_view(ref.get_ref<const std::string&>()).substr(2);
      if (!visits_.take(path.size())) return *at;
      const Plain* next = &plain_root_;
      while (true) {
        const size_t end = std::min(path.find('/'), path.size());
        const auto found =
            next->is_object() ? next->find(std::string(path.substr(0, end))) : next->end();
        if (found == next->end()) return *at;
        next = &*found;
        if (end == path.size()) break;
        path.remove_prefix(end + 1);
      }
      at = next;
    }
    return *at;
  }

  std::string written(std::string_view text) const {
    return regex_of_text(kind_ == ArgumentStyle::entities ? with_entities(text)
                                                          : std::string(text));
  }

  std::optional<TextRegex> text_regex(const Plain& given, int depth) const {
    if (depth > kSchemaDepthMax || !visits_.take()) return std::nullopt;
    const Plain& schema = resolved(given);
    if (!schema.is_object()) return TextRegex{std::string(kAnything)};
    if (const auto one = schema.find("const"); one != schema.end()) return one_of({&*one, 1});
    if (const auto list = schema.find("enum"); list != schema.end() && list->is_array())
      return one_of(list->get_ref<const Plain::array_t&>());
    for (const char* word : {"anyOf", "oneOf", "allOf"})
      if (schema.contains(word)) return alternatives(schema[word], word, depth);
    const auto pattern = schema.find("pattern");
    const bool bounded = schema.contains("minLength") || schema.contains("maxLength");
    if (pattern != schema.end() && pattern->is_string()) {
      const auto& text = pattern->get_ref<const std::string&>();
      if (bounded || !visits_.take(text.size())) return std::nullopt;
      return TextRegex{pattern_anywhere(text), true};
    }
    if (!bounded) return TextRegex{std::string(kAnything)};
    const auto bound = [&](const char* name) {
      const auto found = schema.find(name);
      return found == schema.end() || !found->is_number_unsigned() ? std::string() : found->dump();
    };
    const std::string least = bound("minLength");
    return TextRegex{
        fmt::format("(?s:.{{{},{}}})", least.empty() ? "0" : least, bound("maxLength")), true};
  }

  std::optional<TextRegex> one_of(std::span<const Plain> values) const {
    if (!visits_.take_list(values.size())) return std::nullopt;
    std::string regex;
    for (const Plain& value : values) {
      if (!value.is_string()) return std::nullopt;
      regex += fmt::format("{}{}", regex.empty() ? "" : "|",
                           written(value.get_ref<const std::string&>()));
    }
    if (!visits_.take(regex.size())) return std::nullopt;
    return TextRegex{regex, true};
  }

  std::optional<TextRegex> alternatives(const Plain& list, std::string_view word, int depth) const {
    if (!list.is_array() || list.empty() || (word == "allOf" && list.size() > 1))
      return std::nullopt;
    TextRegex all;
    for (const Plain& one : list) {
      auto text = text_regex(one, depth + 1);
      if (!text) return std::nullopt;
      if (!text->exact) return text;
      all.regex += fmt::format("{}(?:{})", all.regex.empty() ? "" : "|", text->regex);
    }
    all.exact = true;
    return all;
  }

  static std::string pattern_anywhere(std::string_view pattern) {
    const bool from_start = pattern.starts_with('^');
    const std::string inner = regex_without_anchors(pattern);
    const bool to_end = inner.size() + (from_start ? 1 : 0) < pattern.size();
    return fmt::format("{}(?:{}){}", from_start ? "" : kAnything, inner, to_end ? "" : kAnything);
  }

  // Returns true if any text is a valid value: a plain string, or a string beside words (null,
  // true).
  bool is_text_or_word(const Plain& given, int depth) const {
    if (depth > kSchemaDepthMax || !visits_.take()) return false;
    const Plain& schema = resolved(given);
    if (!schema.is_object()) return false;
    for (const char* word : {"enum", "const", "pattern", "minLength", "maxLength", "allOf"})
      if (schema.contains(word)) return false;
    const auto is_word = [](const Plain& type) {
      return type == "string" || type == "null" || type == "boolean";
    };
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (!type->is_array()) return *type == "string";
      return visits_.take_list(type->size()) && std::ranges::all_of(*type, is_word) &&
             std::ranges::find(*type, Plain("string")) != type->end();
    }
    for (const char* word : {"anyOf", "oneOf"}) {
      const auto list = schema.find(word);
      if (list == schema.end() || !list->is_array()) continue;
      const auto is_either = [&](const Plain& one) { return is_text_or_word(one, depth + 1); };
      return std::ranges::any_of(*list, is_either) &&
             std::ranges::all_of(*list, [&](const Plain& one) {
               if (is_either(one)) return true;
               const Plain& alone = resolved(one);
               return alone.is_object() && !alone.contains("enum") && !alone.contains("const") &&
                      alone.contains("type") && is_word(alone["type"]) && alone["type"] != "string";
             });
    }
    return false;
  }

  const Tool& tool_;
  ArgumentStyle kind_;
  ArgumentMarks style_;
  LarkWriter& lark_;
  Json root_;
  Plain plain_root_;
  std::shared_ptr<const ParameterKinds> kinds_;
  std::vector<std::pair<const char*, const Json*>> definitions_;
  std::set<std::string> required_;
  std::vector<Argument> arguments_;
  bool may_be_none_ = true;
  SchemaVisits& visits_;
};

}  // namespace

Result<std::string> argument_rules(const Tool& tool, ArgumentStyle style, ArgumentCheck will,
                                   LarkWriter& lark, SchemaVisits& visits) {
  if (style == ArgumentStyle::json) {
    if (will == ArgumentCheck::any) return lark.schema(R"({"type":"object"})");
    if (tool.parameters.empty()) return lark.schema(kNoParameters);
    return lark.schema(with_named_properties_only(tool.parameters));
  }
  ArgumentWriter writer(tool, style, lark, visits);
  return will == ArgumentCheck::any ? writer.any() : writer.of_schema();
}

}  // namespace hocket
