#include "text/grammar/ebnf.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "core/grammar_spec.h"
#include "text/grammar/ebnf_tree.h"

namespace hocket {
namespace {

using NodeKind = EbnfNode::Kind;

constexpr size_t kMaxBytes = 2 << 20;       // size of the written Lark grammar
constexpr size_t kMaxRegexBytes = 1 << 16;  // a longer regex is written as named rules instead

// Finds out if a rule that the root needs calls itself, directly or through others, or is nested so
// deep that writing it out in place would need too much of the stack.
class Recursion {
 public:
  explicit Recursion(const EbnfGrammar& grammar)
      : grammar_(grammar), heights_(grammar.rules.size(), kUnseen) {
    rule_height(grammar.root);
  }
  bool found() const { return found_; }

 private:
  static constexpr int kUnseen = -1, kOpen = -2;
  static constexpr int kMaxHeight = 2048;  // 200 bytes of the stack each

  // Returns how deep the parts of the rule's body are nested, with the rules that it uses.
  int rule_height(size_t rule) {
    if (heights_[rule] >= 0) return heights_[rule];
    found_ = found_ || heights_[rule] == kOpen;
    heights_[rule] = kOpen;
    const int height = height_of(grammar_.rules[rule].body);
    return heights_[rule] = height;
  }
  int height_of(const EbnfNode& node) {
    found_ = found_ || depth_ == kMaxHeight;
    if (found_) return 0;
    ++depth_;
    int height = node.kind == NodeKind::rule ? rule_height(node.rule) : 0;
    for (const EbnfNode& part : node.parts) height = std::max(height, height_of(part));
    --depth_;
    found_ = found_ || height == kMaxHeight;
    return height + 1;
  }

  const EbnfGrammar& grammar_;
  std::vector<int> heights_;
  int depth_ = 0;
  bool found_ = false;
};

std::string set_regex(const EbnfNode& set) {
  if (set.ranges.empty()) return "(?s:.)";
  std::string out = set.negated ? "[^" : "[";
  for (const auto& [first, last] : set.ranges) {
    out += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(first));
    if (last != first) out += fmt::format("-\\x{{{:X}}}", static_cast<uint32_t>(last));
  }
  return out + "]";
}

std::string counts(const EbnfNode& node) {
  if (node.max == 1 && node.min == 0) return "?";
  if (node.max < 0)
    return node.min == 0 ? "*" : node.min == 1 ? "+" : fmt::format("{{{},}}", node.min);
  return fmt::format("{{{},{}}}", node.min, node.max);
}

// Appends a part as a regular expression, with its rules written out. Returns false if it grows too
// long.
bool add_regex(const EbnfGrammar& grammar, const EbnfNode& node, std::string& out) {
  if (out.size() > kMaxRegexBytes) return false;
  if (node.kind == NodeKind::set) return out += set_regex(node), true;
  if (node.kind == NodeKind::rule) return add_regex(grammar, grammar.rules[node.rule].body, out);
  out += "(?:";
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0 && node.kind == NodeKind::choice) out += '|';
    if (!add_regex(grammar, node.parts[i], out)) return false;
  }
  out += ')';
  if (node.kind == NodeKind::repeat) out += counts(node);
  return true;
}

// Appends a part as Lark in which every terminal is one character.
void add_lark(const EbnfNode& node, std::string& out) {
  if (out.size() > kMaxBytes) return;
  switch (node.kind) {
    case NodeKind::set:
      out += fmt::format("/{}/", set_regex(node));
      return;
    case NodeKind::rule:
      out += fmt::format("r{}", node.rule);
      return;
    case NodeKind::repeat:
      out += '(';
      add_lark(node.parts.front(), out);
      out += ')' + counts(node);
      return;
    case NodeKind::sequence:
    case NodeKind::choice:
      break;
  }
  if (node.parts.empty()) {
    out += "\"\"";
    return;
  }
  out += '(';
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0) out += node.kind == NodeKind::choice ? " | " : " ";
    add_lark(node.parts[i], out);
  }
  out += ')';
}

}  // namespace

Result<std::string> lark_of_ebnf(std::string_view ebnf) {
  if (ebnf.size() > kMaxGrammarBytes)
    return fail(ErrorCode::invalid_request, "the grammar has {} bytes, at most {} are taken",
                ebnf.size(), kMaxGrammarBytes);
  HOCKET_TRY(const EbnfGrammar grammar, read_ebnf(ebnf));
  if (!Recursion(grammar).found()) {
    std::string regex;
    if (add_regex(grammar, grammar.rules[grammar.root].body, regex))
      return fmt::format("start: /{}/\n", regex);
  }
  std::string out = fmt::format("start: r{}\n", grammar.root);
  for (size_t i = 0; i < grammar.rules.size() && out.size() <= kMaxBytes; ++i) {
    out += fmt::format("r{}: ", i);
    add_lark(grammar.rules[i].body, out);
    out += '\n';
  }
  if (out.size() > kMaxBytes)
    return fail(ErrorCode::invalid_request,
                "the grammar is too large: {} bytes of it come to more "
                "than {} as Lark",
                ebnf.size(), kMaxBytes);
  return out;
}

}  // namespace hocket
