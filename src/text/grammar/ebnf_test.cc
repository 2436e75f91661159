#include "text/grammar/ebnf.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>

#include "text/grammar/ebnf_tree.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;

struct EbnfCase {
  const char* grammar;
  std::vector<std::string> good, bad;
};

// The example that llama.cpp and xgrammar give their users.
constexpr const char* kJson = R"EBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws  # quoted
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
)EBNF";

const EbnfCase kEbnfCases[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno", "y"}},
    {"root ::= \"a\"*", {"", "a", "aaaa"}, {"b"}},
    {"root ::= [a-c]+ \"-\" [^a-c] .", {"ab-x\n", "c-\nz"}, {"ab-a1", "-xx", "ab-x"}},
    {"root ::= x{2,3} y{2} z{1,}\nx ::= \"x\"\ny ::= \"y\"\nz ::= \"z\"",
     {"xxyyz", "xxxyyzz"},
     {"xyyz", "xxxxyyz", "xxyz", "xxyy"}},
    {"root ::= \"\\\"\\\\\\n\\t\\x41\\u00e9\\U0001F600/\"", {"\"\\\n\tA\u00e9\U0001F600/"}, {"\""}},
    {"root ::= [\\]\\-\\^a\\n]+", {"]-^a\n"}, {"b", "\\"}},
    {"root ::= [a-]+", {"a-"}, {"b"}},
    {"root ::= \"\" | \"x\"", {"", "x"}, {"xx"}},
    // These rules call themselves.
    {"root ::= \"(\" root \")\" | \"\"", {"", "(())"}, {"(()", "())"}},
    {"root ::= root \"+\" n | n\nn ::= [0-9]+", {"1", "12+3+45"}, {"+", "1+", "1++2"}},
    // A part leaves text to the next one even if it could take it.
    {"root ::= [a-z]+ rest\nrest ::= \"b\" rest \"c\" | \"d\"",
     {"ad", "abdc", "abbdcc", "zabd"},
     {"d", "abc", "abdcc"}},
    {"root ::= \"a\" tail | \"ab\" other\ntail ::= \"b\" tail | \"x\"\nother ::= \"y\" | \"(\" "
     "other \")\"",
     {"abx", "aby", "ab(y)", "ax"},
     {"ay", "ab(x)"}},
    {kJson,
     {"{}", "{\"a\": [1, -2.5e3, {\"b\": null}], \"c\": \"x\\n\\u00e9\"}", "{\n  \"k\": true}"},
     {"", "[]", "{\"a\": 01}", "{\"a\": }", "{\"a\" 1}", "{'a': 1}", "{\"a\": \"\n\"}"}},
};

TEST(Ebnf, TakesItsTextsAndNoOthers) {
  const TestVocabulary v;
  for (const EbnfCase& c : kEbnfCases) {
    const auto lark = lark_of_ebnf(c.grammar);
    ASSERT_TRUE(lark.has_value()) << c.grammar << lark.error().message;
    const auto made = v.vocabulary().compile({.kind = GrammarKind::lark, .text = *lark});
    ASSERT_TRUE(made.has_value()) << made.error().message << "\n" << *lark;
    for (const std::string& text : c.good) EXPECT_TRUE(v.takes(**made, text)) << c.grammar << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(v.takes(**made, text)) << c.grammar << text;
  }
}

TEST(Ebnf, OneRegexWhereNoRuleCallsItself) {
  EXPECT_EQ(lark_of_ebnf("root ::= a a\na ::= \"x\"?")->find("r0"), std::string::npos);
  EXPECT_NE(lark_of_ebnf("root ::= \"x\" root?")->find("r0"), std::string::npos);
  // A regular expression that would be too long is not written either.
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    doubling += "a" + std::to_string(i) + " ::= " + next + " " + next + "\n";
  }
  const auto lark = lark_of_ebnf(doubling + "a30 ::= \"x\"");
  ASSERT_TRUE(lark.has_value());
  EXPECT_LT(lark->size(), 4096u);
}

TEST(Ebnf, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "root"},
      {"start ::= \"x\"", "root"},
      {"root ::= nowhere", "line 1: there is no rule named nowhere"},
      {"root ::= \"x", "a \" is missing"},
      {"root ::= (\"x\"", "a ) is missing"},
      {"root ::= [a", "a ] is missing"},
      {"root ::= []", "no character"},
      {"root ::= [z-a]", "range"},
      {"root ::= \"x\"{3,2}", "{m,n}"},
      {"root ::= \"x\"{a}", "numbers"},
      {"root ::= \"\\q\"", "escape"},
      {"root ::= \"\\uD800\"", "no character"},
      {"root ::= \"x\"\n\nroot ::= \"y\"", "line 3: a rule is defined twice"},
      {"root = \"x\"", "::= is missing"},
      {"root ::= \"a\" )", "name"},
      {"root ::= (= \"a\")", "lookahead"},
      {"root ::= TagDispatch((\"a\", b))", "TagDispatch"},
  };
  for (const auto& [grammar, want] : cases) {
    const auto lark = lark_of_ebnf(grammar);
    ASSERT_FALSE(lark.has_value()) << grammar;
    EXPECT_NE(lark.error().message.find(want), std::string::npos)
        << grammar << ": " << lark.error().message;
  }
}

// Any text may be read: no crash, no endless loop, and the result compiles or is refused.
TEST(Ebnf, ReadsAnything) {
  const TestVocabulary v;
  std::mt19937 random(5);
  const std::string_view pieces[] = {"root", "::=", "a", " ", "\n",   "\"x\"", "\"",  "[a-z]", "[",
                                     "]",    "(",   ")", "*", "+",    "?",     "{2}", "{1,",   "|",
                                     "\\",   "#",   ".", "é", "\xff", "^",     "-"};
  for (int i = 0; i < 3000; ++i) {
    std::string text = random() % 2 ? "root ::= " : "";
    for (auto n = random() % 12; n > 0; --n) text += pieces[random() % std::size(pieces)];
    const auto lark = lark_of_ebnf(text);
    if (lark && i % 10 == 0)
      (void)v.vocabulary().compile({.kind = GrammarKind::lark, .text = *lark});
  }
  const std::string deep(200'000, '(');
  EXPECT_FALSE(lark_of_ebnf("root ::= " + deep).has_value());
}

TEST(Ebnf, RefusesWhatWouldGrowTooDeepOrTooLarge) {
  EXPECT_TRUE(lark_of_ebnf("root ::= \"a\"?+*").has_value());
  for (const auto& [grammar, want] : std::vector<std::pair<std::string, const char*>>{
           {"root ::= \"a\"" + std::string(900'000, '+'), "more than 8 repetitions"},
           {"root ::= \"a\"" + std::string(9, '?'), "more than 8 repetitions"},
           {"root ::= \"" + std::string(200'000, 'a') + '"', "more than 131072"},
           {"root ::= " + std::string(200'000, '.'), "more than 131072"},
           {"root ::= #" + std::string(3'000'000, '+'), "at most 1048576"}}) {
    const auto lark = lark_of_ebnf(grammar);
    ASSERT_FALSE(lark.has_value());
    EXPECT_NE(lark.error().message.find(want), std::string::npos) << lark.error().message;
  }
  // Rules use one another, and each use is deep inside a rule, whichever rule is read first.
  const std::string open(120, '('), close(120, ')');
  std::string rules, all;
  for (int i = 0; i < 900; ++i) {
    rules += fmt::format("a{} ::= {}\"x\" a{}{}\n", i, open, i + 1, close);
    all = fmt::format("a{} ", i) + all;
  }
  rules += "a900 ::= \"y\"\n";
  EXPECT_TRUE(lark_of_ebnf(rules + "root ::= a0").has_value());
  EXPECT_TRUE(lark_of_ebnf(rules + "root ::= " + all).has_value());
}

}  // namespace
}  // namespace hocket
