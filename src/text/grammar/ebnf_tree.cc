#include "text/grammar/ebnf_tree.h"

#include <map>
#include <optional>

namespace hocket {
namespace {

constexpr int kMaxEbnfDepth = 128;
constexpr int kMaxRepeats = 8;         // one after the other: x?+*
constexpr size_t kMaxNodes = 1 << 17;  // some 150 bytes each
constexpr int kMaxCount = 100'000;
constexpr char32_t kLastCharacter = 0x10FFFF;

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

EbnfNode one_character(char32_t c) {
  return {.kind = EbnfNode::Kind::set, .ranges = {{c, c}}, .parts = {}};
}

// Reads by recursive descent. Every function leaves `at_` behind the text it read; the first
// mistake is kept and ends all reading.
class EbnfReader {
 public:
  explicit EbnfReader(std::string_view text) : text_(text) {}

  Result<EbnfGrammar> read() {
    skip_blanks();
    while (!error_ && at_ < text_.size()) read_rule();
    if (error_) return fail(*std::move(error_));
    const auto root = names_.find("root");
    if (root == names_.end() || !grammar_.rules[root->second].defined)
      return fail(ErrorCode::invalid_request, "the grammar has no rule named root");
    for (const EbnfRule& rule : grammar_.rules)
      if (!rule.defined)
        return fail(ErrorCode::invalid_request, "line {}: there is no rule named {}",
                    rule.first_line, rule.name);
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  void read_rule() {
    const int line = line_;
    const std::string_view name = read_name();
    if (name.empty()) return wrong("a rule must begin with its name");
    skip_blanks();
    if (!take("::=")) return wrong("::= is missing after the name of a rule");
    const size_t index = rule_named(name, line);
    if (grammar_.rules[index].defined) return wrong("a rule is defined twice");
    grammar_.rules[index].defined = true;
    EbnfNode body = read_choice(0);
    grammar_.rules[index].body = std::move(body);
  }

  EbnfNode read_choice(int depth) {
    EbnfNode choice{.kind = EbnfNode::Kind::choice, .ranges = {}, .parts = {}};
    if (depth > kMaxEbnfDepth) return wrong("it is nested too deep"), choice;
    do {
      choice.parts.push_back(read_sequence(depth));
      if (error_) return choice;
    } while (take("|"));
    if (choice.parts.size() > 1) return choice;
    EbnfNode only = std::move(choice.parts.front());
    return only;
  }

  EbnfNode read_sequence(int depth) {
    EbnfNode sequence;
    for (skip_blanks(); !error_ && at_ < text_.size(); skip_blanks()) {
      const char c = text_[at_];
      if (c == '|' || c == ')' || begins_rule()) break;
      if (++num_nodes_ > kMaxNodes)
        return wrong("it has more than 131072 characters, names and groups"), sequence;
      EbnfNode item = read_item(depth);
      if (!error_) sequence.parts.push_back(repeated(std::move(item)));
    }
    return sequence;
  }

  EbnfNode read_item(int depth) {
    const char c = text_[at_];
    if (c == '"') return read_text();
    if (c == '[') return read_set();
    if (c == '.') return ++at_, EbnfNode{.kind = EbnfNode::Kind::set, .negated = true, .parts = {}};
    if (c == '(') {
      ++at_;
      if (at_ < text_.size() && text_[at_] == '=')
        return wrong("lookahead, (= ...), is not supported"), EbnfNode{};
      EbnfNode inside = read_choice(depth + 1);
      skip_blanks();
      if (!error_ && !take(")")) wrong("a ) is missing");
      return inside;
    }
    const int line = line_;
    const std::string_view name = read_name();
    if (name.empty()) return wrong("this cannot be read"), EbnfNode{};
    if (at_ < text_.size() && text_[at_] == '(')
      return wrong("calls such as TagDispatch() are not supported"), EbnfNode{};
    return {.kind = EbnfNode::Kind::rule, .rule = rule_named(name, line), .parts = {}};
  }

  EbnfNode read_text() {
    EbnfNode sequence;
    ++at_;
    while (!error_ && !take("\"")) {
      if (at_ >= text_.size() || text_[at_] == '\n') return wrong("a \" is missing"), sequence;
      if (++num_nodes_ > kMaxNodes)
        return wrong("it has more than 131072 characters, names and groups"), sequence;
      sequence.parts.push_back(one_character(read_character()));
    }
    if (sequence.parts.size() != 1) return sequence;
    EbnfNode only = std::move(sequence.parts.front());
    return only;
  }

  EbnfNode read_set() {
    EbnfNode set{.kind = EbnfNode::Kind::set, .ranges = {}, .parts = {}};
    ++at_;
    set.negated = take("^");
    while (!error_ && !take("]")) {
      if (at_ >= text_.size() || text_[at_] == '\n') return wrong("a ] is missing"), set;
      const char32_t first = read_character();
      char32_t last = first;
      const bool is_range =
          text_.substr(at_).starts_with('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (is_range) ++at_, last = read_character();
      if (last < first) return wrong("a range ends before it begins"), set;
      set.ranges.emplace_back(first, last);
    }
    if (set.ranges.empty() && !set.negated) wrong("[] holds no character");
    return set;
  }

  // Reads x, x*, x+, x?, x{2}, x{2,}, x{2,3}; also several repetitions in a row.
  EbnfNode repeated(EbnfNode item) {
    for (int num = 0; !error_ && at_ < text_.size(); ++num) {
      int least = 0, most = -1;
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (take("{")) {
        read_counts(least, most);
      } else {
        break;
      }
      if (num == kMaxRepeats) return wrong("more than 8 repetitions follow one another"), item;
      EbnfNode again{.kind = EbnfNode::Kind::repeat, .ranges = {}, .parts = {}};
      again.min = least;
      again.max = most;
      again.parts.push_back(std::move(item));
      item = std::move(again);
    }
    return item;
  }

  void read_counts(int& least, int& most) {
    skip_blanks();
    least = read_number();
    most = least;
    skip_blanks();
    if (take(",")) {
      skip_blanks();
      most = at_ < text_.size() && text_[at_] == '}' ? -1 : read_number();
      skip_blanks();
    }
    if (!error_ && !take("}")) return wrong("a } is missing");
    if (most >= 0 && most < least) wrong("{m,n} needs m up to n");
  }

  int read_number() {
    int number = 0;
    const size_t from = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && number <= kMaxCount)
      number = 10 * number + (text_[at_++] - '0');
    if (at_ == from || number > kMaxCount) wrong("{ must hold numbers up to 100000");
    return number;
  }

  // Reads one character of a text or a set, with escapes resolved.
  char32_t read_character() {
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte == '\\') return read_escape();
    ++at_;
    if (byte < 0x80) return byte;
    const int more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    char32_t c = byte & (0x3F >> more);
    for (int i = 0; i < more; ++i) {
      if (at_ >= text_.size() || (text_[at_] & 0xC0) != 0x80) return wrong("it is not UTF-8"), c;
      c = c << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3F);
    }
    return c;
  }

  char32_t read_escape() {
    ++at_;
    if (at_ >= text_.size()) return wrong("nothing follows a backslash"), 0;
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case '0':
        return 0;
      case 'x':
        return read_hex(2);
      case 'u':
        return read_hex(4);
      case 'U':
        return read_hex(8);
      default:
        break;
    }
    if (is_name_character(c) && c != '-' && c != '.' && c != '_')
      wrong("this escape is not known; \\n \\t \\r \\xHH \\uHHHH \\UHHHHHHHH are");
    --at_;
    return read_character_plain();
  }

  // Reads a character that stands for itself behind a backslash.
  char32_t read_character_plain() {
    if (text_[at_] == '\\') return ++at_, U'\\';
    return read_character();
  }

  char32_t read_hex(int num_digits) {
    char32_t c = 0;
    for (int i = 0; i < num_digits; ++i) {
      const int d = at_ < text_.size() ? digit(text_[at_]) : -1;
      if (d < 0) return wrong("an escape has too few hexadecimal digits"), 0;
      c = c << 4 | static_cast<char32_t>(d);
      ++at_;
    }
    if (c > kLastCharacter || (c >= 0xD800 && c <= 0xDFFF)) wrong("an escape is no character");
    return c;
  }

  // Returns true if `name ::=` follows, which ends the rule before it. Dots are items and may be
  // in names, so a run of them is scanned only once.
  bool begins_rule() {
    if (at_ < no_rule_before_) return false;
    size_t at = at_;
    while (at < text_.size() && is_name_character(text_[at])) ++at;
    if (at == at_) return false;
    const size_t end = at;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    if (text_.substr(at).starts_with("::=")) return true;
    no_rule_before_ = end;
    return false;
  }

  std::string_view read_name() {
    const size_t from = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }

  size_t rule_named(std::string_view name, int line) {
    const auto [found, is_new] = names_.emplace(std::string(name), grammar_.rules.size());
    if (is_new)
      grammar_.rules.push_back({.name = std::string(name), .body = {}, .first_line = line});
    return found->second;
  }

  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        if (at_ >= text_.size()) return;
      } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
        return;
      }
      line_ += text_[at_] == '\n';
    }
  }

  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  void wrong(const char* what) {
    if (!error_) error_ = error(ErrorCode::invalid_request, "line {}: {}", line_, what);
    at_ = text_.size();
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t num_nodes_ = 0;
  size_t no_rule_before_ = 0;
  std::optional<Error> error_;
  EbnfGrammar grammar_;
  std::map<std::string, size_t> names_;
};

}  // namespace

Result<EbnfGrammar> read_ebnf(std::string_view text) {
  return EbnfReader(text).read();
}

}  // namespace hocket
