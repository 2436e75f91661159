// Writes a Lark grammar, rule by rule. A piece is a text that may be in the body of a rule.
// Thread: any, one at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar_spec.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

// A rule that is in a list.
struct ListedRule {
  std::string rule;
  bool required = false;
};

// The texts that `regex` matches, except those that a regex of `but_for` matches.
struct TextPattern {
  std::string regex;
  std::vector<std::string> but_for;
};

class LarkWriter {
 public:
  // With a tokenizer, the spelling of a control token in a text becomes that token in the grammar;
  // without one, it stays text. Names of rules begin with `letter`.
  explicit LarkWriter(const Tokenizer* tokenizer = nullptr, char letter = 't')
      : tokenizer_(tokenizer), letter_(letter) {}

  // Each of these returns a piece.
  std::string text(std::string_view text) const;
  std::string schema(std::string_view json);
  std::string regex(std::string_view regex) const;
  // Any text in which none of `words` occurs.
  std::string text_without(std::span<const std::string> words);
  // Any text up to the first `end`, which is included; none of `others` occurs before it.
  std::string text_up_to(std::string_view end, std::span<const std::string> others = {});
  std::string text_of(const TextPattern& pattern);
  // A text of this pattern, then `end`, whose first occurrence ends the text.
  std::string text_then(const TextPattern& pattern, std::string_view end);
  // Another whole grammar, whose rules have names of their own.
  std::string grammar(const GrammarSpec& spec);
  std::string rule(std::string_view body);
  // These rules in order, with `separator` between those that are present; the required ones always
  // are.
  std::string in_order(std::span<const ListedRule> rules, std::string_view separator);
  // Returns the name of a rule that define() writes later, so that rules may lead to themselves.
  std::string new_name();
  void define(std::string_view name, std::string_view body);

  // Returns the bytes of the rules written so far.
  size_t num_bytes() const { return rules_.size(); }

  std::string finish(std::string_view start) const;

 private:
  std::string rules_;
  int num_rules_ = 0;
  const Tokenizer* tokenizer_ = nullptr;
  char letter_ = 't';
};

// Returns a regex of the texts in which one of `words` occurs.
std::string regex_of_texts_with(std::span<const std::string> words);
// Returns "text" as Lark and JSON quote it.
std::string lark_quoted(std::string_view text);

}  // namespace hocket
