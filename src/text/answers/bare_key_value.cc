#include "text/answers/bare_key_value.h"

#include <utility>

#include "text/answers/json_pieces.h"
#include "text/answers/text_cursor.h"
#include "text/answers/typed_value.h"

namespace hocket {
namespace {

constexpr int kMaxNestedDepth = 64;

// Reads by recursive descent.
class BareKeyReader : TextCursor {
 public:
  explicit BareKeyReader(std::string_view text) : TextCursor(text) {}

  std::optional<std::string> whole() {
    std::string out;
    if (here() != '{' && here() != '[') return std::nullopt;
    if (!value(out, 0)) return std::nullopt;
    skip_blanks();
    if (at_ != text_.size()) return std::nullopt;
    return out;
  }

 private:
  bool value(std::string& out, int depth) {
    if (depth > kMaxNestedDepth) return false;
    skip_blanks();
    if (text_.substr(at_).starts_with(kTextMark)) {
      const auto text = marked();
      if (text) out += quoted_json(*text);
      return text.has_value();
    }
    switch (here()) {
      case '{':
        return object(out, depth);
      case '[':
        return list(out, depth);
      case '"':
      case '\'': {
        const auto text = quoted();
        if (text) out += typed_json(*text, ValueKinds::any());
        return text.has_value();
      }
      default:
        return word(out);
    }
  }

  bool list(std::string& out, int depth) {
    ++at_;
    out += '[';
    bool first = true, comma = true;
    while (!take(']')) {
      if (!comma) return false;
      if (!std::exchange(first, false)) out += ", ";
      if (!value(out, depth + 1)) return false;
      comma = take(',');
    }
    out += ']';
    return true;
  }

  bool object(std::string& out, int depth) {
    ++at_;
    out += '{';
    bool first = true, comma = true;
    while (!take('}')) {
      if (!comma) return false;
      if (!std::exchange(first, false)) out += ", ";
      if (!key(out)) return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
      comma = take(',');
    }
    out += '}';
    return true;
  }

  bool key(std::string& out) {
    skip_blanks();
    std::optional<std::string_view> name;
    if (text_.substr(at_).starts_with(kTextMark)) {
      name = marked();
    } else if (here() == '"' || here() == '\'') {
      name = quoted();
      if (name) name = bare_key(*name);
    } else {
      const size_t end = text_.find_first_of(":={}[],", at_);
      if (end == text_.npos) return false;
      name = trimmed(text_.substr(at_, end - at_));
      at_ = end;
    }
    if (!name || name->empty()) return false;
    out += quoted_json(*name);
    return take(':') || take('=');
  }

  std::optional<std::string_view> marked() {
    const size_t begin = at_ + kTextMark.size(), end = text_.find(kTextMark, begin);
    if (end == text_.npos) return std::nullopt;
    at_ = end + kTextMark.size();
    return text_.substr(begin, end - begin);
  }

  // Returns the text with its quotes.
  std::optional<std::string_view> quoted() {
    const size_t begin = at_;
    const char quote = text_[at_++];
    for (; !ended(); ++at_) {
      if (here() == '\\' && at_ + 1 < text_.size())
        ++at_;
      else if (here() == quote)
        return ++at_, text_.substr(begin, at_ - begin);
    }
    return std::nullopt;
  }

  // Reads a number, true, false, null, or text without marks. Its end may have a mark.
  bool word(std::string& out) {
    const size_t begin = at_;
    while (!ended() && !std::string_view(",]}").contains(here()) &&
           !text_.substr(at_).starts_with(kTextMark))
      ++at_;
    const std::string_view word = trimmed(text_.substr(begin, at_ - begin));
    if (text_.substr(at_).starts_with(kTextMark)) {
      at_ += kTextMark.size();
      return out += quoted_json(word), true;
    }
    if (word.empty()) return false;
    return out += typed_json(word, ValueKinds::any()), true;
  }
};

}  // namespace

std::optional<std::string> bare_keys_to_json(std::string_view text) {
  return BareKeyReader(trimmed(text)).whole();
}

std::optional<std::string_view> bare_key(std::string_view written) {
  written = trimmed(written);
  for (const std::string_view mark : {kTextMark, std::string_view("\""), std::string_view("'")}) {
    if (!written.starts_with(mark)) continue;
    if (written.size() < 2 * mark.size() || !written.ends_with(mark)) return std::nullopt;
    return written.substr(mark.size(), written.size() - 2 * mark.size());
  }
  return written;
}

bool NestedEnd::step(char c) {
  if (quote_ != 0) {
    if (std::exchange(escaped_, false)) return false;
    escaped_ = c == '\\';
    if (c != quote_) return false;
    quote_ = 0;
    return depth_ == 0;
  }
  std::string free;
  if (finder_.step(c, free) != MarkFinder::kNone) {
    // Behind a word, the mark ends a text whose first mark was forgotten.
    in_marks_ = !in_marks_ && value_begins_;
    value_begins_ = false;
    return false;
  }
  if (in_marks_ || free.empty()) return false;
  for (const char one : free) take_structure(one);
  return depth_ == 0 && quote_ == 0;
}

void NestedEnd::take_structure(char c) {
  if (is_blank(c)) return;
  if ((c == '"' || c == '\'') && value_begins_) quote_ = c;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  value_begins_ = std::string_view("{[,:=").contains(c);
}

}  // namespace hocket
