#include "text/grammar/ebnf.h"

#include <fmt/core.h>

#include <vector>

#include "text/grammar/ebnf_tree.h"

namespace hocket {
namespace {

using Kind = EbnfNode::Kind;

constexpr size_t kBytesMax = 2 << 20;       // of what comes out
constexpr size_t kRegexBytesMax = 1 << 16;  // beyond it, rules are worth their names

// Whether a rule calls itself, in the end, among those that the root needs.
class Recursion {
 public:
  explicit Recursion(const EbnfGrammar& grammar)
      : grammar_(grammar), state_(grammar.rules.size(), State::unseen) {
    visit_rule(grammar.root);
  }
  bool found() const { return found_; }

 private:
  enum class State : uint8_t { unseen, open, done };
  void visit_rule(size_t rule) {
    // Rules call each other as deep as there are rules; the stack does not hold every number.
    if (found_ || state_[rule] == State::done) return;
    if (state_[rule] == State::open || ++depth_ > kDepthMax) {
      found_ = true;
      return;
    }
    state_[rule] = State::open;
    visit(grammar_.rules[rule].body);
    state_[rule] = State::done;
    --depth_;
  }
  void visit(const EbnfNode& node) {
    if (node.kind == Kind::rule) visit_rule(node.rule);
    for (const EbnfNode& part : node.parts) visit(part);
  }

  static constexpr int kDepthMax = 256;
  const EbnfGrammar& grammar_;
  std::vector<State> state_;
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
  if (node.most == 1 && node.least == 0) return "?";
  if (node.most < 0)
    return node.least == 0 ? "*" : node.least == 1 ? "+" : fmt::format("{{{},}}", node.least);
  return fmt::format("{{{},{}}}", node.least, node.most);
}

// Appends a part as a regular expression in place of its rules. False when it grows too long.
bool add_regex(const EbnfGrammar& grammar, const EbnfNode& node, std::string& out) {
  if (out.size() > kRegexBytesMax) return false;
  if (node.kind == Kind::set) return out += set_regex(node), true;
  if (node.kind == Kind::rule) return add_regex(grammar, grammar.rules[node.rule].body, out);
  out += "(?:";
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0 && node.kind == Kind::choice) out += '|';
    if (!add_regex(grammar, node.parts[i], out)) return false;
  }
  out += ')';
  if (node.kind == Kind::repeat) out += counts(node);
  return true;
}

// Appends a part as Lark in which every terminal is one character.
void add_lark(const EbnfNode& node, std::string& out) {
  if (out.size() > kBytesMax) return;
  switch (node.kind) {
    case Kind::set:
      out += fmt::format("/{}/", set_regex(node));
      return;
    case Kind::rule:
      out += fmt::format("r{}", node.rule);
      return;
    case Kind::repeat:
      out += '(';
      add_lark(node.parts.front(), out);
      out += ')' + counts(node);
      return;
    case Kind::sequence:
    case Kind::choice:
      break;
  }
  if (node.parts.empty()) {
    out += "\"\"";
    return;
  }
  out += '(';
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0) out += node.kind == Kind::choice ? " | " : " ";
    add_lark(node.parts[i], out);
  }
  out += ')';
}

}  // namespace

Result<std::string> lark_of_ebnf(std::string_view ebnf) {
  HOCKET_TRY(const EbnfGrammar grammar, read_ebnf(ebnf));
  if (!Recursion(grammar).found()) {
    std::string regex;
    if (add_regex(grammar, grammar.rules[grammar.root].body, regex))
      return fmt::format("start: /{}/\n", regex);
  }
  std::string out = fmt::format("start: r{}\n", grammar.root);
  for (size_t i = 0; i < grammar.rules.size() && out.size() <= kBytesMax; ++i) {
    out += fmt::format("r{}: ", i);
    add_lark(grammar.rules[i].body, out);
    out += '\n';
  }
  if (out.size() > kBytesMax)
    return fail(ErrorCode::invalid_request,
                "the grammar is too large: {} bytes of it come to more "
                "than {} as Lark",
                ebnf.size(), kBytesMax);
  return out;
}

}  // namespace hocket
