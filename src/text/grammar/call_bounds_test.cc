// Tests the bounds on the work that schemas of tools ask for, and the refusals of what a family
// cannot write.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/grammar/answer_rules.h"
#include "text/grammar/argument_rules.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;
using PlainJson = nlohmann::json;

Tool tool_of(const PlainJson& schema) {
  return {.name = "f", .description = {}, .parameters = schema.dump()};
}

// The limit on written lists is for the whole tool, not for each property that leads to them.
TEST(CallBounds, AllPropertiesOfAToolShareOneBound) {
  const auto rules = [](PlainJson definition, int num_properties) -> Result<std::string> {
    PlainJson schema = {{"$defs", {{"h", std::move(definition)}}}};
    for (int i = 0; i < num_properties; ++i)
      schema["properties"][std::to_string(i)]["$ref"] = "#/$defs/h";
    const Tool tool = tool_of(schema);
    LarkWriter lark;
    SchemaVisits visits;
    HOCKET_TRY(const std::string start,
               argument_rules(tool, ArgumentStyle::lines, ArgumentCheck::schema, lark, visits));
    return lark.finish(start);
  };
  PlainJson types(140'000, "");
  types[0] = "integer";
  const auto long_list = rules({{"type", std::move(types)}}, 2);
  ASSERT_TRUE(long_list) << long_list.error().message;
  EXPECT_NE(long_list->find("%json"), std::string::npos);
  EXPECT_EQ(long_list->find("%json"), long_list->rfind("%json"));
  const PlainJson dropped = {
      {"anyOf", {{{"enum", {std::string(1'000'000, 'a')}}}, {{"title", "t"}}}}};
  EXPECT_TRUE(rules(dropped, 1));
  const auto often = rules(dropped, 9);
  ASSERT_FALSE(often);
  EXPECT_TRUE(often.error().message.contains("more than 65536 schemas")) << often.error().message;
}

TEST(CallBounds, AllToolsOfARequestShareOneBound) {
  const PlainJson dropped = {
      {"anyOf", {{{"enum", {std::string(1'000'000, 'a')}}}, {{"title", "t"}}}}};
  const Tool tool = tool_of({{"properties", {{"a", dropped}}}});
  LarkWriter lark;
  SchemaVisits visits;
  const auto add = [&] {
    return argument_rules(tool, ArgumentStyle::lines, ArgumentCheck::schema, lark, visits);
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(add()) << i;
  const auto fifth = add();
  ASSERT_FALSE(fifth);
  EXPECT_TRUE(fifth.error().message.contains("with all tools before it")) << fifth.error().message;
}

TEST(CallBounds, SaysWhatAFamilyCannotWrite) {
  const TestVocabulary v;
  struct Refusal {
    ToolFormat format;
    Tool tool;
    const char* words;
  };
  const auto tool = [](const char* name, const char* parameters) {
    return Tool{.name = name, .description = {}, .parameters = parameters, .strict = true};
  };
  const Refusal refusals[] = {
      {ToolFormat::qwen3_coder, tool("f", R"({"anyOf":[{"type":"object"}]})"), "anyOf"},
      {ToolFormat::glm45, tool("f", R"({"properties":{"a<":{}}})"), "a name"},
      {ToolFormat::mimo,
       tool("f", R"({"properties":{"a":{"type":"string","pattern":"x","maxLength":3}}})"),
       "limit a in a way"},
      {ToolFormat::minimax_m2, tool("f", R"({"properties":{"a\"b":{}}})"), "a name"},
      {ToolFormat::pythonic, tool("f:g", R"({"type":"object"})"), "f:g"},
      {ToolFormat::none, tool("f", R"({"type":"object"})"), "how this model writes"}};
  for (const auto& [format, one, words] : refusals) {
    const auto made = grammar_of_answer({.tools = std::span(&one, 1),
                                         .choice = {.kind = ToolChoice::Kind::required, .name = {}},
                                         .format = format,
                                         .text = nullptr,
                                         .reasoning = {}},
                                        v.tokenizer());
    ASSERT_FALSE(made) << words;
    EXPECT_EQ(made.error().code, ErrorCode::invalid_request);
    EXPECT_TRUE(made.error().message.contains(words)) << made.error().message;
  }
}

}  // namespace
}  // namespace hocket
