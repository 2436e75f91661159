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
#include "text/grammar/bare_key_rules.h"
#include "text/grammar/schema_texts.h"
#include "text/grammar/spellings.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;
using Plain = nlohmann::json;  // finds a key without a search through all keys

constexpr std::string_view kNoParameters = R"({"type":"object","additionalProperties":false})";

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
    texts_.emplace(plain_root_,
                   kind_ == ArgumentStyle::entities ? TextSpelling::entities : TextSpelling::plain,
                   visits_);
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
      if (visits_.used_up()) return refuse(kSoManySchemas);
      if (lark_.num_bytes() > kMaxGrammarBytes)
        return refuse(
            fmt::format("come to more than {} bytes, as each property is given all definitions",
                        kMaxGrammarBytes));
    }
    return kind_ == ArgumentStyle::keywords ? lark_.in_order(arguments_, ", ")
                                            : one_after_another();
  }

 private:
  std::unexpected<Error> refuse(std::string_view what) const {
    return refuse_parameters(tool_, what);
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
    for (const ListedRule& one : arguments_)
      all += one.required ? one.rule + " " : fmt::format("({})? ", one.rule);
    return all;
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
      const auto text = texts_->regex_of(plain);
      if (visits_.used_up()) return refuse(kSoManySchemas);
      if (!text)
        return refuse(fmt::format("limit {} in a way that cannot be checked on text without quotes",
                                  name.substr(0, 64)));
      return text_with(*text);
    }
    if (kinds == ValueKinds::any() || texts_->is_text_or_word(plain)) return any_text();
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

  const Tool& tool_;
  ArgumentStyle kind_;
  ArgumentMarks style_;
  LarkWriter& lark_;
  Json root_;
  Plain plain_root_;
  std::shared_ptr<const ParameterKinds> kinds_;
  std::vector<std::pair<const char*, const Json*>> definitions_;
  std::set<std::string> required_;
  std::optional<SchemaTexts> texts_;
  std::vector<ListedRule> arguments_;
  SchemaVisits& visits_;
};

}  // namespace

std::unexpected<Error> refuse_parameters(const Tool& tool, std::string_view what) {
  return fail(error(ErrorCode::invalid_request, "the parameters of the tool {} {}",
                    tool.name.substr(0, 64), what)
                  .with_fix("leave \"strict\" and tool_choice out, or change the schema")
                  .with_param("tools"));
}

Result<std::string> argument_rules(const Tool& tool, ArgumentStyle style, ArgumentCheck will,
                                   LarkWriter& lark, SchemaVisits& visits) {
  if (style == ArgumentStyle::json) {
    if (will == ArgumentCheck::any) return lark.schema(R"({"type":"object"})");
    if (tool.parameters.empty()) return lark.schema(kNoParameters);
    return lark.schema(with_named_properties_only(tool.parameters));
  }
  if (style == ArgumentStyle::bare_keys) return bare_key_rules(tool, will, lark, visits);
  ArgumentWriter writer(tool, style, lark, visits);
  return will == ArgumentCheck::any ? writer.any() : writer.of_schema();
}

}  // namespace hocket
