#include "text/grammar/schema_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/spellings.h"

namespace hocket {
namespace {

std::string with_entities(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string pattern_anywhere(std::string_view pattern) {
  const bool from_start = pattern.starts_with('^');
  const std::string inner = regex_without_anchors(pattern);
  const bool to_end = inner.size() + (from_start ? 1 : 0) < pattern.size();
  return fmt::format("{}(?:{}){}", from_start ? "" : kAnything, inner, to_end ? "" : kAnything);
}

}  // namespace

const SchemaTexts::Plain& SchemaTexts::resolved(const Plain& schema) const {
  const Plain* at = &schema;
  for (int i = 0; i < kMaxSchemaDepth && at->is_object() && at->contains("$ref"); ++i) {
    const Plain& ref = (*at)["$ref"];
    if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with("#/")) return *at;
    std::string_view path = std::string_view(ref.get_ref<const std::string&>()).substr(2);
    if (!visits_.take(path.size())) return *at;
    const Plain* next = &root_;
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

std::string SchemaTexts::written(std::string_view text) const {
  return regex_of_text(spelling_ == TextSpelling::entities ? with_entities(text)
                                                           : std::string(text));
}

std::optional<TextRegex> SchemaTexts::regex_of(const Plain& given, int depth) const {
  if (depth > kMaxSchemaDepth || !visits_.take()) return std::nullopt;
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
  return TextRegex{fmt::format("(?s:.{{{},{}}})", least.empty() ? "0" : least, bound("maxLength")),
                   true};
}

std::optional<TextRegex> SchemaTexts::one_of(std::span<const Plain> values) const {
  if (!visits_.take_list(values.size())) return std::nullopt;
  std::string regex;
  for (const Plain& value : values) {
    if (!value.is_string()) return std::nullopt;
    regex +=
        fmt::format("{}{}", regex.empty() ? "" : "|", written(value.get_ref<const std::string&>()));
  }
  if (!visits_.take(regex.size())) return std::nullopt;
  return TextRegex{regex, true};
}

std::optional<TextRegex> SchemaTexts::alternatives(const Plain& list, std::string_view word,
                                                   int depth) const {
  if (!list.is_array() || list.empty() || (word == "allOf" && list.size() > 1)) return std::nullopt;
  TextRegex all;
  for (const Plain& one : list) {
    auto text = regex_of(one, depth + 1);
    if (!text) return std::nullopt;
    if (!text->exact) return text;
    all.regex += fmt::format("{}(?:{})", all.regex.empty() ? "" : "|", text->regex);
  }
  all.exact = true;
  return all;
}

bool SchemaTexts::is_text_or_word(const Plain& given, int depth) const {
  if (depth > kMaxSchemaDepth || !visits_.take()) return false;
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

}  // namespace hocket
