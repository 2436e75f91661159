#include "text/grammar/spellings.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "text/answers/blank.h"

namespace hocket {
namespace {

// The same as in rust/src/grammar.rs.
constexpr std::string_view kGuidance =
    R"("x-guidance":{"whitespace_flexible":true,"whitespace_pattern":"[ \n\r\t]{0,16}"})";

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ' ' ||
         c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// Returns true if the character at `at` is behind an odd number of backslashes.
bool is_escaped(std::string_view text, size_t at) {
  size_t backslashes = 0;
  while (backslashes < at && text[at - 1 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

}  // namespace

std::string regex_of_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_plain(c))
      out += c;
    else
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<std::string> regex_of_choices(std::span<const std::string> choices) {
  if (choices.empty()) return fail(ErrorCode::invalid_request, "there is nothing to choose from");
  std::string out = "(";
  for (const std::string& choice : choices) {
    if (out.size() > 1) out += '|';
    out += regex_of_text(choice);
  }
  return out + ")";
}

std::string regex_without_anchors(std::string_view regex) {
  if (regex.starts_with('^')) regex.remove_prefix(1);
  if (regex.ends_with('$') && !is_escaped(regex, regex.size() - 1)) regex.remove_suffix(1);
  return std::string(regex);
}

std::string embedded_schema(std::string_view schema) {
  const size_t open = schema.find_first_not_of(kBlanks);
  if (open == schema.npos || schema[open] != '{') return fmt::format("{{{}}}", kGuidance);
  if (schema.find("\"x-guidance\"") != schema.npos) return std::string(schema);
  const std::string_view rest = schema.substr(open + 1);
  const size_t first = rest.find_first_not_of(kBlanks);
  const bool is_empty = first != rest.npos && rest[first] == '}';
  return fmt::format("{{{}{}{}", kGuidance, is_empty ? "" : ",", rest);
}

std::string schema_text(const nlohmann::ordered_json& schema) {
  return schema.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hocket
