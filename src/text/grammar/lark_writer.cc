#include "text/grammar/lark_writer.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "text/grammar/spellings.h"

namespace hocket {
namespace {

constexpr size_t kMaxControlBytes = 256;  // longest spelling of a control token

// Writes a regex as /.../ in Lark, where a slash or a line end inside would end it.
std::string between_slashes(std::string_view regex) {
  std::string out = "/";
  bool escaped = false;
  for (const char c : regex) {
    if (c == '/' && !escaped)
      out += "\\/";
    else if (c == '\n')
      out += escaped ? "n" : "\\n";
    else
      out += c;
    escaped = c == '\\' && !escaped;
  }
  return out + '/';
}

std::string any_of(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += '|';
    out += regex_of_text(word);
  }
  return out;
}

std::string without(std::span<const std::string> words) {
  if (words.empty()) return "";
  return fmt::format(" & ~/{}/", regex_of_texts_with(words));
}

std::string but_for(const TextPattern& pattern) {
  std::string out;
  for (const std::string& regex : pattern.but_for) out += " & ~" + between_slashes(regex);
  return out;
}

// Returns the control token with which `text` begins; some are flagged, others only look like one
// (DeepSeek's). If two such marks begin alike, only the token itself surely passes a mask whole.
std::optional<TokenId> control_at(std::string_view text, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  if (const auto id = tokenizer->special_at(text)) return id;
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"<｜", "｜>"}, {"<|", "|>"}}) {
    const size_t end =
        text.starts_with(open) ? text.substr(0, kMaxControlBytes).find(close) : text.npos;
    if (end != text.npos) return tokenizer->find(text.substr(0, end + close.size()));
  }
  return std::nullopt;
}

}  // namespace

std::string regex_of_texts_with(std::span<const std::string> words) {
  return fmt::format("(?s:.*)({})(?s:.*)", any_of(words));
}

std::string lark_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

std::string LarkWriter::text(std::string_view text) const {
  std::string out, plain;
  const auto flush = [&] {
    if (!plain.empty()) out += lark_quoted(std::exchange(plain, {})) + ' ';
  };
  while (!text.empty()) {
    const auto id = control_at(text, tokenizer_);
    if (id) {
      flush();
      out += fmt::format("<[{}]> ", value(*id));
      text.remove_prefix(tokenizer_->token_bytes(*id).size());
    } else {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  flush();
  if (out.empty()) return "\"\"";
  out.pop_back();
  return out;
}

std::string LarkWriter::schema(std::string_view json) {
  return rule(fmt::format("%json {}", embedded_schema(json)));
}

std::string LarkWriter::regex(std::string_view regex) const {
  return between_slashes(regex_without_anchors(regex));
}

std::string LarkWriter::text_of(const TextPattern& pattern) {
  const std::string name =
      fmt::format("{}{}", static_cast<char>(letter_ - 'a' + 'A'), num_rules_++);
  rules_ += fmt::format("{}: {}{}\n", name, between_slashes(pattern.regex), but_for(pattern));
  return name;
}

std::string LarkWriter::text_without(std::span<const std::string> words) {
  TextPattern pattern{.regex = "(?s:.*)", .but_for = {}};
  if (!words.empty()) pattern.but_for.push_back(regex_of_texts_with(words));
  return text_of(pattern);
}

// A control token is not text, so free text ends before it without more rules.
std::string LarkWriter::text_up_to(std::string_view end, std::span<const std::string> others) {
  if (tokenizer_ != nullptr && tokenizer_->special_at(end))
    return fmt::format("{} {}", text_without(others), text(end));
  std::string name = new_name();
  rules_ += fmt::format("{}[lazy]: /(?s:.*){}/{}\n", name, regex_of_text(end), without(others));
  return name;
}

std::string LarkWriter::text_then(const TextPattern& pattern, std::string_view end) {
  if (tokenizer_ != nullptr && tokenizer_->special_at(end))
    return fmt::format("{} {}", text_of(pattern), text(end));
  std::string name = new_name();
  const std::string whole = fmt::format("(?:{}){}", pattern.regex, regex_of_text(end));
  rules_ += fmt::format("{}[lazy]: {}{}\n", name, between_slashes(whole), but_for(pattern));
  return name;
}

std::string LarkWriter::grammar(const GrammarSpec& spec) {
  switch (spec.kind) {
    case GrammarKind::json_schema:
      return schema(spec.text);
    case GrammarKind::regex:
      return regex(spec.text);
    case GrammarKind::lark:
      break;
  }
  return rule(fmt::format("%lark {{\n{}\n}}", spec.text));
}

std::string LarkWriter::rule(std::string_view body) {
  std::string name = new_name();
  define(name, body);
  return name;
}

// Built from the last rule on. behind: may follow once a rule has been written. first: may come
// while none has been written.
std::string LarkWriter::in_order(std::span<const ListedRule> rules, std::string_view separator) {
  std::string behind, first;
  bool may_be_none = true;
  for (size_t i = rules.size(); i-- > 0;) {
    const auto& [one, required] = rules[i];
    const std::string then = fmt::format("{} {} {}", lark_quoted(separator), one, behind);
    const std::string begun = fmt::format("{} {}", one, behind);
    const std::string otherwise = first.empty() ? "" : " | " + first;
    first = rule(required ? begun
                          : fmt::format("({}{}){}", begun, otherwise, first.empty() ? "?" : ""));
    behind = rule(required         ? then
                  : behind.empty() ? fmt::format("({})?", then)
                                   : fmt::format("({} | {})", then, behind));
    may_be_none &= !required;
  }
  if (first.empty()) return "";
  return may_be_none ? fmt::format("({})?", first) : first;
}

std::string LarkWriter::new_name() {
  return fmt::format("{}{}", letter_, num_rules_++);
}

void LarkWriter::define(std::string_view name, std::string_view body) {
  rules_ += fmt::format("{}: {}\n", name, body);
}

std::string LarkWriter::finish(std::string_view start) const {
  return fmt::format("start: {}\n{}", start, rules_);
}

}  // namespace hocket
