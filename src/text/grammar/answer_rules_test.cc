#include "text/grammar/answer_rules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/answers/answer_parser.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;
using Kind = ToolChoice::Kind;

const std::vector<Tool> kTools = {
    {.name = "add",
     .description = {},
     .parameters = R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],
                       "additionalProperties":false})",
     .strict = true},
    {.name = "now", .description = {}, .parameters = "", .strict = false}};

const ReasoningFormat kThink = {.open = "<think>", .close = "</think>", .implied = false};

AnswerSpec spec_for(ToolFormat format, Kind kind, std::span<const Tool> tools = kTools) {
  return {.tools = tools,
          .choice = {.kind = kind, .name = {}},
          .format = format,
          .text = nullptr,
          .reasoning = kThink};
}

std::shared_ptr<const Grammar> grammar_of(const TestVocabulary& v, const AnswerSpec& spec) {
  const auto made = grammar_of_answer(spec, v.tokenizer());
  if (!made || *made == nullptr) {
    ADD_FAILURE() << (made ? "it is free" : made.error().message);
    return nullptr;
  }
  auto grammar = v.vocabulary().compile(**made);
  if (grammar) return *grammar;
  ADD_FAILURE() << grammar.error().message << "\n" << (*made)->text;
  return nullptr;
}

void expect(const TestVocabulary& v, const AnswerSpec& spec, const std::vector<std::string>& good,
            const std::vector<std::string>& bad) {
  const auto grammar = grammar_of(v, spec);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& text : good) EXPECT_TRUE(v.takes(*grammar, text)) << text;
  for (const std::string& text : bad) EXPECT_FALSE(v.takes(*grammar, text)) << text;
}

std::string hermes(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

GrammarSpec boolean_text() {
  return {.kind = GrammarKind::json_schema, .text = R"({"type":"boolean"})", .field = "f"};
}

TEST(AnswerRules, RequiredIsOneCallOrMore) {
  const TestVocabulary v;
  AnswerSpec spec = spec_for(ToolFormat::hermes, Kind::required);
  const std::string add = hermes("add", "{\"n\": 1}"), now = hermes("now", "{}");
  expect(v, spec, {add, now, add + "\n" + now},
         {"", "I add.", hermes("sub", "{}"), hermes("add", "{}"), hermes("now", "{\"a\": 1}"),
          add + " and"});
  spec.parallel = false;
  expect(v, spec, {add, now}, {add + "\n" + now});
  // The answer must be a call, so the form of its text has no effect.
  spec.text = std::make_shared<const GrammarSpec>(boolean_text());
  expect(v, spec, {add}, {"true"});
}

TEST(AnswerRules, ArgumentsAreThoseThatTheSchemaNames) {
  const TestVocabulary v;
  const std::vector<Tool> open = {
      {.name = "add",
       .description = {},
       .parameters = R"({"type":"object","properties":{"n":{"type":"integer"}}})",
       .strict = false},
      {.name = "any", .description = {}, .parameters = R"({"type":"object"})", .strict = false},
      {.name = "more",
       .description = {},
       .parameters = R"({"properties":{"n":{}},"additionalProperties":true})",
       .strict = false}};
  expect(v, spec_for(ToolFormat::hermes, Kind::required, open),
         {hermes("add", "{}"), hermes("add", "{\"n\": 1}"), hermes("any", "{\"a\": 1}"),
          hermes("more", "{\"a\": 1}")},
         {hermes("add", "{\"a\": 1}"), hermes("add", "{\"n\": 1, \"a\": 1}")});
}

TEST(AnswerRules, NamedIsThatOneOnce) {
  const TestVocabulary v;
  AnswerSpec spec = spec_for(ToolFormat::hermes, Kind::named);
  spec.choice.name = "now";
  const std::string now = hermes("now", "{}");
  expect(v, spec, {now}, {hermes("add", "{\"n\": 1}"), "", now + "\n" + now});
  spec.choice.name = "gone";
  EXPECT_EQ(grammar_of_answer(spec, v.tokenizer()).error().param, "tool_choice");
}

TEST(AnswerRules, StrictToolsAreFollowedInFreeText) {
  const TestVocabulary v;
  AnswerSpec spec = spec_for(ToolFormat::hermes, Kind::automatic);
  const std::string add = hermes("add", "{\"n\": 1}"), now = hermes("now", "{\"any\": [1]}");
  expect(v, spec, {"", "no call", add, "Let me see.\n" + add, now, add + "\n" + now + "\nDone."},
         {hermes("add", "{\"n\": \"x\"}"), hermes("sub", "{}"), "<tool_call>", "a <tool_call> b"});
  const std::vector<Tool> loose = {kTools[1]};
  spec.tools = loose;
  EXPECT_EQ(*grammar_of_answer(spec, v.tokenizer()), nullptr);
  spec.tools = kTools;
  spec.choice.kind = Kind::none;
  EXPECT_EQ(*grammar_of_answer(spec, v.tokenizer()), nullptr);
}

TEST(AnswerRules, BareCallsOfStrictToolsAreToldFromTextByTheirBegin) {
  const TestVocabulary qwen, llama("llama3");
  const std::string call = R"({"name": "add", "parameters": {"n": 7}})";
  expect(llama, spec_for(ToolFormat::llama3_json, Kind::automatic),
         {"", "It is 7, {so}.\n", "\n7", call, "<|python_tag|>" + call, call + "; " + call},
         {R"({"name": "add", "parameters": {}})", "{\"a\": 1}", " [1]", "x <|python_tag|>"});
  expect(qwen, spec_for(ToolFormat::pythonic, Kind::automatic),
         {"seven", "[add(n=7)]", "[add(n=7), now()]"}, {"[add(n=\"7\")]", "[1]", "[add()]"});
}

TEST(AnswerRules, ATextOfAFormLeavesRoomForCalls) {
  const TestVocabulary v, llama("llama3");
  AnswerSpec spec = spec_for(ToolFormat::hermes, Kind::automatic);
  spec.text = std::make_shared<const GrammarSpec>(boolean_text());
  const std::string add = hermes("add", "{\"n\": 1}");
  expect(v, spec, {"true", add, add + "\n" + add}, {"", "yes", hermes("add", "{}"), add + "true"});
  EXPECT_EQ((*grammar_of_answer(spec, v.tokenizer()))->field, "f");
  spec.format = ToolFormat::llama3_json;
  const std::string call = R"({"name": "add", "parameters": {"n": 7}})";
  expect(llama, spec, {"true", "<|python_tag|>" + call}, {"", call});
  spec.tools = {};
  EXPECT_EQ(*grammar_of_answer(spec, v.tokenizer()), spec.text);
}

TEST(AnswerRules, ReasoningComesFirst) {
  const TestVocabulary v;
  AnswerSpec spec = spec_for(ToolFormat::hermes, Kind::required);
  const std::string now = hermes("now", "{}");
  spec.reasoning_start = ReasoningStart::open;
  expect(v, spec, {"hm <b>\n</think>\n\n" + now, "</think>" + now},
         {now, "</think>\nx", "<tool_call></think>" + now});
  spec.reasoning_start = ReasoningStart::possible;
  expect(v, spec, {now, "<think>\nhm\n</think>\n\n" + now, "\n<think></think>" + now},
         {"hm</think>" + now, "<think>hm" + now});
  spec.choice.kind = Kind::automatic;
  expect(v, spec, {"", "\nHi", "<think>x</think>\n\nHi", "<think>x</think>\n" + now + "\n", now},
         {"<tool_call>Hi"});
}

TEST(AnswerRules, ChannelsHoldReasoningCallsAndText) {
  const TestVocabulary v;
  AnswerSpec spec = spec_for(ToolFormat::gpt_oss, Kind::required);
  spec.reasoning = choose_reasoning_format("gpt-oss", "").value();
  spec.reasoning_start = ReasoningStart::possible;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" +
           arguments;
  };
  const std::string next = "<|end|><|start|>assistant", final = "<|channel|>final<|message|>",
                    reasoning = "<|channel|>analysis<|message|>I <b>add.\n" + next,
                    preamble = "<|channel|>commentary<|message|>Adding." + next,
                    add = call("add", "{\"n\": 1}"), now = call("now", "{}");
  expect(v, spec, {add, reasoning + add, now},
         {"", reasoning, add + next + add, final + "x", call("sub", "{}"), call("add", "{}"),
          call("now", "{\"a\": 1}"), reasoning + reasoning + add, preamble + add,
          "<|channel|>analysis<|message|><|channel|>x" + next + add});
  spec.choice = {.kind = Kind::named, .name = "now"};
  expect(v, spec, {now, reasoning + now}, {add});
  spec.choice = {.kind = Kind::automatic, .name = {}};
  expect(v, spec,
         {add, reasoning + add, preamble + add, reasoning + preamble + now, final, final + "Hi <b>",
          reasoning + final + "Hi", call("now", "{\"any\": [1]}")},
         {"Hi", call("add", "{\"n\": \"x\"}"), final + "a<|end|>", final + "<|channel|>"});
  spec.text = std::make_shared<const GrammarSpec>(boolean_text());
  expect(v, spec, {add, reasoning + add, final + "true", reasoning + final + "true"},
         {"true", final, final + "yes", preamble + add});
  spec.tools = {};
  expect(v, spec, {final + "true", reasoning + final + "true"}, {"true", add, reasoning + "true"});
  spec.reasoning_start = ReasoningStart::open;
  expect(v, spec, {"So." + next + final + "true"}, {final + "true", "true"});
  spec.reasoning_start = ReasoningStart::none;
  EXPECT_EQ(*grammar_of_answer(spec, v.tokenizer()), spec.text);
  // Channels come even if reasoning is not separated from the answer.
  AnswerSpec other = spec_for(ToolFormat::gpt_oss, Kind::required);
  other.reasoning = {};
  expect(v, other, {add, reasoning + add}, {final + "x", "x"});
}

TEST(AnswerRules, StrictToolsAreFollowedInTextOfEveryFamilyWithMarks) {
  const TestVocabulary v;
  const std::pair<ToolFormat, std::string> calls[] = {
      {ToolFormat::qwen3_coder,
       "<tool_call>\n<function=add>\n<parameter=n>\nNUM\n</parameter>\n</function>\n</tool_call>"},
      {ToolFormat::glm47,
       "<tool_call>add<arg_key>n</arg_key><arg_value>NUM</arg_value></tool_call>"},
      {ToolFormat::minimax_m2,
       "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"n\">NUM</parameter>\n"
       "</invoke>\n</minimax:tool_call>"},
      {ToolFormat::kimi_k2,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:2<|tool_call_argument_begin|>"
       "{\"n\": NUM}<|tool_call_end|><|tool_calls_section_end|>"}};
  for (const auto& [format, call] : calls) {
    SCOPED_TRACE(tool_format_name(format));
    const auto with = [&call](const std::string& number) {
      std::string text = call;
      return text.replace(text.find("NUM"), 3, number);
    };
    expect(v, spec_for(format, Kind::automatic),
           {"", "no < call", with("1"), "Let me see.\n" + with("22"), with("1") + "\nDone."},
           {with("\"x\""), with(""), "x" + call.substr(0, call.find("add")) + "sub"});
  }
}

TEST(AnswerRules, ReasoningComesBeforeEveryForm) {
  const TestVocabulary v;
  AnswerSpec spec = {.choice = {}, .text = nullptr, .reasoning = kThink};
  const GrammarSpec forms[] = {boolean_text(),
                               {.kind = GrammarKind::regex, .text = "true|false/?", .field = "f"},
                               {.kind = GrammarKind::lark,
                                .text = "start: u0\nu0: \"true\" | \"false\" | \"(\" start \")\"",
                                .field = "f"}};
  for (const GrammarSpec& form : forms) {
    spec.text = std::make_shared<const GrammarSpec>(form);
    spec.reasoning_start = ReasoningStart::open;
    expect(v, spec, {"so\n it is</think>true", "</think>\n\nfalse"},
           {"true", "</think>tru", "x</think> so true"});
    spec.reasoning_start = ReasoningStart::possible;
    expect(v, spec, {"true", "<think>\nso\n</think>\n\nfalse"}, {"so</think>true", "<think>true"});
    spec.reasoning_start = ReasoningStart::none;
    EXPECT_EQ(*grammar_of_answer(spec, v.tokenizer()), spec.text);
  }
  expect(v,
         {.choice = {},
          .text = std::make_shared<const GrammarSpec>(forms[2]),
          .reasoning_start = ReasoningStart::open,
          .reasoning = kThink},
         {"</think>((true))"}, {"</think>((true)"});
}

}  // namespace
}  // namespace hocket
