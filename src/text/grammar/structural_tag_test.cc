#include "text/grammar/structural_tag.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;

struct TagCase {
  const char* tag;
  std::vector<std::string> good, bad;
};

const TagCase kTagCases[] = {
    // This is SGLang's example.
    {R"({"type":"structural_tag","triggers":["<function="],"structures":[
        {"begin":"<function=add>","end":"</function>",
         "schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],
                   "additionalProperties":false}},
        {"begin":"<function=now>","end":"</function>","schema":{"type":"object",
         "additionalProperties":false}}]})",
     {"", "no call at all <", "I add.\n<function=add>{\"n\": 1}</function>",
      "<function=now>{}</function><function=add>{\"n\":2}</function> done",
      "<b>bold</b> <function=now>{}</function>"},
     {"<function=", "<function=sub>{}</function>", "<function=add>{}</function>",
      "<function=add>{\"n\": 1}", "text <function=now>{} </b>"}},
    // There are two triggers; the text before one must not contain the other.
    {R"({"format":{"type":"triggered_tags","triggers":["<a>","<b>"],"tags":[
        {"begin":"<a>","content":{"type":"regex","pattern":"[0-9]"},"end":"</a>"},
        {"begin":"<b>","content":{"type":"const_string","value":"x"},"end":"</b>"}]}})",
     {"<b>x</b><a>1</a>", "x <a>1</a> y <b>x</b> z"},
     {"<b>1</b>", "<b>y</b><a>1</a>", "<a>x</a>"}},
    {R"({"format":{"type":"triggered_tags","at_least_one":true,"stop_after_first":true,
        "triggers":["<a"],"tags":[{"begin":"<a1>","content":{"type":"any_text"},"end":"</a>"},
                                 {"begin":"<a2>","content":{"type":"any_text"},"end":"</a>"}]}})",
     {"<a1>free <a2> text</a>", "first <a2></a>"},
     {"", "no tag", "<a1>x</a> more", "<a3></a>"}},
    {R"({"format":{"type":"sequence","elements":[
        {"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"},
        {"type":"or","elements":[{"type":"const_string","value":"yes"},
                                 {"type":"json_schema","json_schema":{"type":"boolean"}}]}]}})",
     {"<think>hm</think>yes", "<think></think>true"},
     {"yes", "<think>hm</think>", "<think>a</think>yes "}},
    {R"({"format":{"type":"tags_with_separator","separator":", ","at_least_one":true,"tags":[
        {"begin":"[","content":{"type":"regex","pattern":"^[a-z]+$"},"end":"]"}]}})",
     {"[a]", "[a], [bc], [d]"},
     {"", "[a],[b]", "[a], "}},
    {R"({"format":{"type":"sequence","elements":[{"type":"const_string","value":"A: "},
                                                 {"type":"any_text"}]}})",
     {"A: ", "A: anything\n<b>"},
     {"", "B: x"}},
};

TEST(StructuralTag, TakesItsTextsAndNoOthers) {
  const TestVocabulary v;
  for (const TagCase& c : kTagCases) {
    const auto lark = lark_of_structural_tag(c.tag);
    ASSERT_TRUE(lark.has_value()) << c.tag << lark.error().message;
    const auto made = v.vocabulary().compile({.kind = GrammarKind::lark, .text = *lark});
    ASSERT_TRUE(made.has_value()) << made.error().message << "\n" << *lark;
    for (const std::string& text : c.good) EXPECT_TRUE(v.takes(**made, text)) << *lark << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(v.takes(**made, text)) << *lark << text;
  }
}

TEST(StructuralTag, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not JSON"},
      {"[]", "object"},
      {"{}", "triggers"},
      {R"({"triggers":["<a>"]})", "tags"},
      {R"({"triggers":[""],"structures":[{"begin":"<a>","schema":{},"end":""}]})",
       "1 to 256 bytes"},
      {R"({"triggers":["<b>"],"structures":[{"begin":"<a>","schema":{},"end":""}]})",
       "no trigger begins the tag <a>"},
      {R"({"triggers":["<a>","<b>"],"structures":[{"begin":"<a>","schema":{},"end":""}]})",
       "no tag begins with the trigger <b>"},
      {R"({"triggers":["<a>"],"structures":[{"begin":"<a>","schema":{}}]})", "end"},
      {R"({"format":{"type":"grammar","grammar":"x"}})", "type grammar is not supported"},
      {R"({"format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"any_text"}]}})",
       "any_text may only end"},
      {R"({"format":{"type":"tag","begin":"a","content":{"type":"any_text"},"end":""}})",
       "needs an end"},
  };
  for (const auto& [tag, want] : cases) {
    const auto lark = lark_of_structural_tag(tag);
    ASSERT_FALSE(lark.has_value()) << tag;
    EXPECT_NE(lark.error().message.find(want), std::string::npos)
        << tag << ": " << lark.error().message;
  }
  std::string deep = R"({"type":"any_text"})";
  for (int i = 0; i < 40; ++i) deep = R"({"type":"or","elements":[)" + deep + "]}";
  EXPECT_FALSE(lark_of_structural_tag(R"({"format":)" + deep + "}").has_value());
}

TEST(StructuralTag, RefusesWhatIsNestedTooDeepBeforeItIsCopied) {
  for (const char* begin : {R"({"triggers":)", R"({"format":{"type":"json_schema","json_schema":)",
                            R"({"triggers":["<a>"],"structures":[{"begin":"<a>","schema":)"}) {
    const std::string deep = begin + std::string(400'000, '[');
    const auto cut = lark_of_structural_tag(deep);
    const auto whole = lark_of_structural_tag(deep + std::string(400'000, ']') + "}");
    for (const auto* lark : {&cut, &whole}) {
      ASSERT_FALSE(lark->has_value());
      EXPECT_NE(lark->error().message.find("deeper than 64 levels"), std::string::npos)
          << lark->error().message;
    }
  }
}

TEST(StructuralTag, RefusesMoreTriggersThanItWillSpell) {
  std::string triggers;
  for (int i = 0; i < 65; ++i) triggers += fmt::format("{}\"<{}>\"", i > 0 ? "," : "", i);
  const auto lark = lark_of_structural_tag(fmt::format(
      R"({{"triggers":[{}],"structures":[{{"begin":"<1>","schema":{{}},"end":""}}]}})", triggers));
  ASSERT_FALSE(lark.has_value());
  EXPECT_NE(lark.error().message.find("65, at most 64"), std::string::npos) << lark.error().message;
}

// The rule of each trigger contains all others: 64 triggers of 256 bytes make 1 MiB.
TEST(StructuralTag, StopsWhereItsGrammarIsTooLong) {
  std::string triggers, tags;
  for (int i = 0; i < 64; ++i) {
    const std::string trigger = fmt::format("<{:0>254}>", i);
    triggers += fmt::format("{}\"{}\"", i > 0 ? "," : "", trigger);
    tags += fmt::format(R"({}{{"begin":"{}","content":{{"type":"any_text"}},"end":"x"}})",
                        i > 0 ? "," : "", trigger);
  }
  const std::string one =
      fmt::format(R"({{"type":"triggered_tags","triggers":[{}],"tags":[{}]}})", triggers, tags);
  const auto lark = lark_of_structural_tag(
      fmt::format(R"({{"format":{{"type":"or","elements":[{0},{0},{0}]}}}})", one));
  ASSERT_FALSE(lark.has_value());
  EXPECT_NE(lark.error().message.find("more than 1048576 bytes"), std::string::npos)
      << lark.error().message;
}

TEST(StructuralTag, RefusesATypeThatIsNoText) {
  EXPECT_FALSE(lark_of_structural_tag(
                   R"({"format":{"type":"tag","begin":"a","content":{"type":1},"end":"b"}})")
                   .has_value());
}

}  // namespace
}  // namespace hocket
