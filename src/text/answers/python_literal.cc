#include "text/answers/python_literal.h"

#include <charconv>

#include "text/answers/json_copier.h"
#include "text/answers/json_pieces.h"
#include "text/answers/text_cursor.h"

namespace hocket {
namespace {

constexpr int kMaxLiteralDepth = 64;

// Reads by recursive descent.
class LiteralReader : TextCursor {
 public:
  explicit LiteralReader(std::string_view text) : TextCursor(text) {}

  std::optional<std::string> whole() {
    std::string out;
    if (!value(out, 0)) return std::nullopt;
    skip_blanks();
    if (at_ != text_.size()) return std::nullopt;
    return out;
  }

 private:
  bool value(std::string& out, int depth) {
    if (depth > kMaxLiteralDepth) return false;
    skip_blanks();
    switch (here()) {
      case '{':
        return dict(out, depth);
      case '[':
        return list(out, ']', depth);
      case '(':
        return list(out, ')', depth);
      case '\'':
      case '"':
        return strings(out);
      default:
        return word(out);
    }
  }

  // Reads a list or a tuple: (a) is a alone, (a,) is a list.
  bool list(std::string& out, char close, int depth) {
    ++at_;
    std::string items;
    int num_items = 0;
    bool comma = false;
    while (!take(close)) {
      if (num_items > 0 && !comma) return false;
      if (num_items > 0) items += ", ";
      if (!value(items, depth + 1)) return false;
      ++num_items;
      comma = take(',');
    }
    const bool alone = close == ')' && num_items == 1 && !comma;
    out += alone ? items : "[" + items + "]";
    return true;
  }

  bool dict(std::string& out, int depth) {
    ++at_;
    out += '{';
    bool first = true, comma = true;
    while (!take('}')) {
      if (!comma) return false;
      if (!first) out += ", ";
      first = false;
      skip_blanks();
      if (here() != '\'' && here() != '"') return false;
      if (!strings(out) || !take(':')) return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
      comma = take(',');
    }
    out += '}';
    return true;
  }

  // Neighbouring strings form one string.
  bool strings(std::string& out) {
    std::string text;
    bool raw = false;
    do {
      if (!string(text, raw)) return false;
      skip_blanks();
    } while (here() == '\'' || here() == '"');
    out += quoted_json(text);
    return true;
  }

  bool string(std::string& out, bool raw) {
    const char quote = here();
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_).starts_with(three);
    at_ += is_long ? 3 : 1;
    for (;;) {
      if (ended()) return false;
      if (is_long ? text_.substr(at_).starts_with(three) : here() == quote) break;
      if (here() == '\\' && !raw) {
        if (!escape(out)) return false;
      } else {
        out += text_[at_++];
      }
    }
    at_ += is_long ? 3 : 1;
    return true;
  }

  bool escape(std::string& out) {
    ++at_;
    if (ended()) return false;
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return out += '\n', true;
      case 't':
        return out += '\t', true;
      case 'r':
        return out += '\r', true;
      case 'a':
        return out += '\a', true;
      case 'b':
        return out += '\b', true;
      case 'f':
        return out += '\f', true;
      case 'v':
        return out += '\v', true;
      case '\n':
        return true;
      case '\\':
      case '\'':
      case '"':
        return out += c, true;
      case 'x':
        return code_point(out, 2);
      case 'u':
        return code_point(out, 4);
      case 'U':
        return code_point(out, 8);
      default:
        break;
    }
    if (c >= '0' && c <= '7') return --at_, octal(out);
    out += '\\';  // an unknown escape stands for itself
    out += c;
    return true;
  }

  bool code_point(std::string& out, size_t num_digits) {
    const std::string_view digits = text_.substr(at_, num_digits);
    uint32_t code = 0;
    const auto [end, failed] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (failed != std::errc() || digits.size() != num_digits ||
        end != digits.data() + digits.size() || code > 0x10FFFF)
      return false;
    at_ += num_digits;
    append_utf8(out, code);
    return true;
  }

  bool octal(std::string& out) {
    uint32_t code = 0;
    for (int i = 0; i < 3 && here() >= '0' && here() <= '7'; ++i)
      code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
    append_utf8(out, code);
    return true;
  }

  bool word(std::string& out) {
    const size_t begin = at_;
    while (!ended() && !is_blank(here()) && !std::string_view(",]})('\":[{=").contains(here()))
      ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    if ((word == "r" || word == "R") && (here() == '\'' || here() == '"')) {
      std::string text;
      if (!string(text, /*raw=*/true)) return false;
      return out += quoted_json(text), true;
    }
    if (word == "True" || word == "true") return out += "true", true;
    if (word == "False" || word == "false") return out += "false", true;
    if (word == "None" || word == "null") return out += "null", true;
    return number(word, out);
  }

  static bool number(std::string_view word, std::string& out) {
    if (word.starts_with('+')) word.remove_prefix(1);
    std::string plain;
    for (const char c : word)
      if (c != '_') plain += c;
    const bool negative = plain.starts_with('-');
    std::string_view digits = std::string_view(plain).substr(negative ? 1 : 0);
    if (digits.starts_with("0x") || digits.starts_with("0X")) {
      uint64_t n = 0;
      const auto [end, failed] =
          std::from_chars(digits.data() + 2, digits.data() + digits.size(), n, 16);
      if (failed != std::errc() || end != digits.data() + digits.size()) return false;
      out += (negative ? "-" : "") + std::to_string(n);
      return true;
    }
    // Python allows 5. and .5, JSON does not.
    if (const size_t point = plain.find('.'); point != std::string::npos) {
      const auto is_digit = [&](size_t i) {
        return i < plain.size() && plain[i] >= '0' && plain[i] <= '9';
      };
      if (!is_digit(point + 1)) plain.insert(point + 1, "0");
      if (point == 0 || !is_digit(point - 1)) plain.insert(point, "0");
    }
    JsonCopier copier;
    std::string copied;
    for (const char c : plain)
      if (copier.step(c, copied) != JsonCopier::Step::more) return false;
    if (!copier.whole()) return false;
    out += copied;
    return true;
  }
};

}  // namespace

std::optional<std::string> python_to_json(std::string_view text) {
  return LiteralReader(text).whole();
}

}  // namespace hocket
