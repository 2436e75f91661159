#include "text/grammar/grammar.h"

#include <gtest/gtest.h>

#include "text/grammar/spellings.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;

TEST(Grammar, MasksLetThroughWhatFollowsIt) {
  const TestVocabulary v;
  const std::string schema = R"({"type":"object","properties":{"n":{"type":"integer"}},)"
                             R"("required":["n"],"additionalProperties":false})";
  EXPECT_TRUE(v.takes(GrammarKind::json_schema, schema, R"({"n": -12})"));
  EXPECT_FALSE(v.takes(GrammarKind::json_schema, schema, R"({"n": "x"})"));
  EXPECT_FALSE(v.takes(GrammarKind::json_schema, schema, R"({"n": 1)"));
  EXPECT_TRUE(v.takes(GrammarKind::regex, "[a-z]+!", "hello!"));
  EXPECT_FALSE(v.takes(GrammarKind::regex, "[a-z]+!", "hello"));
}

TEST(Grammar, TellsWhereTheTextMayEndAndWhereItMust) {
  const TestVocabulary v;
  const auto grammar = *v.vocabulary().compile({.kind = GrammarKind::regex, .text = "a?b|ab{2}"});
  GrammarMatcher matcher = grammar->begin();
  std::vector<GrammarState> states;
  for (const char* piece : {"a", "b", "b"})
    states.push_back(*matcher.accept(*v.tokenizer().find(piece)));
  EXPECT_FALSE(states[0].may_end);
  EXPECT_TRUE(states[1].may_end);
  EXPECT_FALSE(states[1].ended);
  EXPECT_TRUE(states[2].ended);
  // A finished text allows only an end token.
  std::vector<uint32_t> mask(v.vocabulary().mask_words());
  ASSERT_TRUE(matcher.mask(mask).has_value());
  int num_allowed = 0;
  for (int id = 0; id < v.num_logits(); ++id) num_allowed += mask_allows(mask, id);
  EXPECT_EQ(num_allowed, 1);
  EXPECT_TRUE(mask_allows(mask, value(*v.tokenizer().eos_id())));
  EXPECT_FALSE(matcher.accept(*v.tokenizer().find("b")).has_value());
}

TEST(Grammar, SaysHowManyTokensMayFollowAndTakesNone) {
  const TestVocabulary v;
  const auto grammar = *v.vocabulary().compile({.kind = GrammarKind::regex, .text = "ab{2}c*"});
  GrammarMatcher matcher = grammar->begin();
  const auto ids = [&](std::string_view text) {
    std::vector<TokenId> out;
    for (const char c : text) out.push_back(*v.tokenizer().find(std::string(1, c)));
    return out;
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*matcher.num_allowed(ids("abbcc")), 5u);
    EXPECT_EQ(*matcher.num_allowed(ids("abcc")), 2u);
    EXPECT_EQ(*matcher.num_allowed(ids("b")), 0u);
    EXPECT_EQ(*matcher.num_allowed({}), 0u);
    EXPECT_EQ(*matcher.num_allowed(std::vector{TokenId{1 << 30}}), 0u);
  }
  for (const TokenId id : ids("abb")) ASSERT_TRUE(matcher.accept(id).has_value());
  EXPECT_EQ(*matcher.num_allowed(ids("ca")), 1u);
}

TEST(Grammar, CannotBeMadeOfNonsense) {
  const TestVocabulary v;
  for (const auto& [kind, text] : std::vector<std::pair<GrammarKind, std::string>>{
           {GrammarKind::regex, "(a"},
           {GrammarKind::json_schema, "{"},
           {GrammarKind::json_schema, R"({"type":"nothing"})"},
           {GrammarKind::json_schema, R"({"properties":{"a":{"$ref":"#/nowhere"}}})"},
           {GrammarKind::lark, "start: nowhere"}}) {
    const auto made = v.vocabulary().compile({.kind = kind, .text = text, .field = "regex"});
    ASSERT_FALSE(made.has_value()) << text;
    EXPECT_EQ(made.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(made.error().param, "regex");
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos) << made.error().message;
    EXPECT_GT(made.error().message.size(), 40u) << made.error().message;
  }
}

TEST(Grammar, ControlTokensAreNoText) {
  const TestVocabulary v;
  const auto grammar = *v.vocabulary().compile({.kind = GrammarKind::regex, .text = "(?s:.)*"});
  GrammarMatcher matcher = grammar->begin();
  std::vector<uint32_t> mask(v.vocabulary().mask_words());
  ASSERT_TRUE(matcher.mask(mask).has_value());
  for (int id = 0; id < v.num_logits(); ++id) {
    const bool is_end = TokenId{id} == *v.tokenizer().eos_id();
    const bool is_text =
        v.tokenizer().is_known(TokenId{id}) && !v.tokenizer().is_special(TokenId{id});
    // A byte that begins no character is not text either.
    if (is_text && static_cast<unsigned char>(v.tokenizer().token_bytes(TokenId{id})[0]) >= 0x80)
      continue;
    EXPECT_EQ(mask_allows(mask, id), is_end || is_text) << id;
  }
}

TEST(Spellings, OfChoicesIsExactlyThose) {
  const TestVocabulary v;
  const std::vector<std::string> choices = {"a.b", "a", "(x|y)", "früh", "a\nb/c\"\\"};
  const std::string regex = *regex_of_choices(choices);
  for (const std::string& choice : choices) EXPECT_TRUE(v.takes(GrammarKind::regex, regex, choice));
  for (const char* other : {"acb", "x", "", "ab", "frh", "a.b "})
    EXPECT_FALSE(v.takes(GrammarKind::regex, regex, other)) << other;
  EXPECT_FALSE(regex_of_choices({}).has_value());
}

TEST(Spellings, AnchorsAtTheEdgesSayNothing) {
  EXPECT_EQ(regex_without_anchors("^[0-9]+$"), "[0-9]+");
  EXPECT_EQ(regex_without_anchors("[^a]+"), "[^a]+");
  EXPECT_EQ(regex_without_anchors("cost \\$"), "cost \\$");
  EXPECT_EQ(regex_without_anchors("back\\\\$"), "back\\\\");
  EXPECT_EQ(regex_without_anchors("^"), "");
}

TEST(Spellings, EmbeddedSchemasAllowAsManyBlanksAsOthers) {
  const TestVocabulary v;
  for (const char* schema : {R"({"type":"object"})", "{}", " { } ", "true"}) {
    const std::string lark = "start: t0\nt0: %json " + embedded_schema(schema);
    const std::string whole = embedded_schema(schema);
    for (const auto& [text, good] : std::vector<std::pair<std::string, bool>>{
             {"{\"a\":" + std::string(16, ' ') + "1}", true},
             {"{\"a\":" + std::string(17, ' ') + "1}", false}}) {
      EXPECT_EQ(v.takes(GrammarKind::lark, lark, text), good) << schema;
      EXPECT_EQ(v.takes(GrammarKind::json_schema, whole, text), good) << schema;
    }
  }
}

}  // namespace
}  // namespace hocket
