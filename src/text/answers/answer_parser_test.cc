// Tests rules for every answer: limits, ids, the end after one call, formats and their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "text/answers/call_syntax.h"
#include "text/answers/testing.h"

namespace hocket {
namespace {

TEST(AnswerParser, ALongCallBecomesText) {
  AnswerParser parser(options_of({.format = ToolFormat::hermes}));
  std::vector<AnswerEvent> events;
  std::string text = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"";
  text += std::string(AnswerParser::kMaxHeld, 'a') + "\"}}</tool_call>";
  for (size_t at = 0; at < text.size(); at += 65536)
    parser.push(std::string_view(text).substr(at, 65536), events);
  parser.finish(events);
  const auto parts = parts_of(events);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text, text);
  EXPECT_THAT(parser.warnings(), ::testing::ElementsAre(::testing::HasSubstr("too long")));
}

// Each byte is read a bounded number of times; a quadratic parser would take minutes here.
TEST(AnswerParser, EndlessBlanksCostWhatTheyAreLong) {
  const std::string blanks(size_t{1} << 20, '\n');
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}})";
  const std::string deepseek =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}";
  const auto events_behind = [&](const std::string& text, RecordedAnswer answer) {
    AnswerParser parser(options_of(answer));
    std::vector<AnswerEvent> events;
    parser.push(text, events);
    parser.push(blanks, events);
    if (answer.format == ToolFormat::hermes) parser.push(std::string(blanks.size(), '}'), events);
    if (answer.format == ToolFormat::deepseek_v3)
      parser.push(std::string(blanks.size(), '`'), events);
    parser.push("x", events);
    parser.finish(events);
    return parts_of(events);
  };
  EXPECT_EQ(events_behind("", {.format = ToolFormat::none}).size(), 1u);
  const auto reasoning = events_behind("", {.format = ToolFormat::none, .reasoning_open = true});
  EXPECT_EQ(reasoning, (std::vector{reasoning_part("x")}));
  EXPECT_EQ(events_behind(call, {.format = ToolFormat::hermes}).size(), 2u);
  EXPECT_EQ(events_behind(deepseek, {.format = ToolFormat::deepseek_v3}).size(), 2u);
  const std::string minimax = "<minimax:tool_call><invoke name=\"now\"></invoke>";
  EXPECT_EQ(events_behind(minimax, {.format = ToolFormat::minimax_m2}).size(), 2u);
  const std::string kimi = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}";
  EXPECT_EQ(events_behind(kimi, {.format = ToolFormat::kimi_k2}).size(), 2u);
  const std::string gpt_oss = "<|channel|>commentary to=functions.now<|message|>";
  EXPECT_EQ(events_behind(gpt_oss, {.format = ToolFormat::gpt_oss}),
            (std::vector{text_part(gpt_oss + blanks + "x")}));
}

TEST(AnswerParser, EndsAfterTheCallsThatAreAllowed) {
  auto options = options_of({.format = ToolFormat::hermes});
  options.max_calls = 1;
  AnswerParser parser(options);
  std::vector<AnswerEvent> events;
  parser.push("a<tool_call>{\"name\": \"now\"}</tool_call> b", events);
  EXPECT_TRUE(parser.done());
  parser.push("<tool_call>{\"name\": \"now\"}</tool_call>", events);
  parser.finish(events);
  EXPECT_EQ(parts_of(events).size(), 2u);
}

// Fuzzing found that such a call ended without arguments and lost the text that was there.
TEST(AnswerParser, ArgumentsThatAreAStringOfNoObjectMakeNoCall) {
  for (const ToolFormat format : {ToolFormat::json, ToolFormat::llama3_json}) {
    const std::string text = R"({"name": "now", "arguments": "soon"})";
    const auto parts = parts_of(events_of(options_of({.format = format}), {text}));
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0], text_part(text));
  }
}

TEST(AnswerParser, WarningsAreFew) {
  AnswerParser parser(options_of({.format = ToolFormat::hermes}));
  std::vector<AnswerEvent> events;
  for (int i = 0; i < 100; ++i) parser.push("<tool_call>no</tool_call>", events);
  parser.finish(events);
  EXPECT_EQ(parser.warnings().size(), AnswerParser::kMaxWarnings);
  EXPECT_EQ(parts_of(events)[0].text.size(), 100 * std::string("<tool_call>no</tool_call>").size());
}

TEST(AnswerParser, IdsAreTheSameEachTimeAndUnlikeEachOther) {
  std::set<std::string> ids;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (int i = 0; i < 50; ++i) {
      const std::string id = call_id(ToolFormat::hermes, seed, i);
      EXPECT_EQ(id, call_id(ToolFormat::hermes, seed, i));
      EXPECT_EQ(id.size(), 29u);
      EXPECT_TRUE(ids.insert(id).second);
      EXPECT_EQ(call_id(ToolFormat::mistral, seed, i).size(), 9u);
    }
}

// Heads of messages have a bound, and the text of one that passes it is not lost.
TEST(AnswerParser, EndlessHeadsAndMarksOfChannelsAreText) {
  const auto prose_of = [](const std::string& text, size_t num_warnings) {
    AnswerParser parser(options_of({.format = ToolFormat::gpt_oss}));
    std::vector<AnswerEvent> events;
    parser.push(text, events);
    parser.finish(events);
    EXPECT_EQ(parser.warnings().size(), num_warnings);
    std::string prose;
    for (const AnswerPart& part : parts_of(events)) {
      EXPECT_EQ(part.kind, AnswerPart::Kind::text);
      prose += part.text;
    }
    return prose;
  };
  const std::string name(size_t{1} << 20, 'x');
  const std::string endless = "<|channel|>commentary to=functions." + name;
  EXPECT_EQ(prose_of(endless, 1), endless);
  const std::string message = endless + "<|message|>{}<|call|>";
  EXPECT_EQ(prose_of(message, 1), endless + "<|message|>{}");
  const std::string long_name =
      "<|channel|>a to=functions." + name.substr(0, 400) + "<|message|>{}<|call|>";
  EXPECT_EQ(prose_of(long_name, 1), long_name);
  std::string starts, ends;
  for (int i = 0; i < 100'000; ++i) starts += "<|start|><|channel|>", ends += "<|end|> \n";
  EXPECT_EQ(prose_of(ends, 0), "");
  std::string blanks_only = prose_of(starts, AnswerParser::kMaxWarnings);
  EXPECT_GT(blanks_only.size(), starts.size() - 1024);
}

TEST(AnswerParser, EndlessMarksOfCallsInThoughtsAreThoughts) {
  std::string thoughts;
  for (int i = 0; i < 20'000; ++i) thoughts += "<tool_call>{";
  thoughts += "<tool_call>{\"arguments\": \"" + thoughts;
  const auto options = options_of({.format = ToolFormat::hermes, .reasoning_open = true});
  EXPECT_EQ(parts_of(events_of(options, {thoughts})), (std::vector{reasoning_part(thoughts)}));
  const auto closed = parts_of(events_of(options, {thoughts, "</think>Hi"}));
  EXPECT_EQ(closed, (std::vector{reasoning_part(thoughts), text_part("Hi")}));
}

// Calls within reasoning wait for the answer's end, but not for more text than one call may have.
TEST(AnswerParser, CallsWithinReasoningAreHeldUpToALimit) {
  AnswerParser parser(options_of({.format = ToolFormat::hermes, .reasoning_open = true}));
  std::vector<AnswerEvent> events;
  parser.push("So <tool_call>{\"name\": \"now\"}</tool_call>", events);
  EXPECT_EQ(parts_of(events), (std::vector{reasoning_part("So")}));
  EXPECT_TRUE(parser.may_be_calls());
  parser.push(std::string(AnswerParser::kMaxHeld, '\n'), events);
  EXPECT_FALSE(parser.may_be_calls());
  EXPECT_TRUE(parser.calls_ended_reasoning());
  parser.push("Hi", events);
  parser.finish(events);
  EXPECT_EQ(parts_of(events).size(), 3u);
}

TEST(AnswerParser, TheLastCallThatIsAllowedEndsReasoning) {
  auto options = options_of({.format = ToolFormat::hermes, .reasoning_open = true});
  options.max_calls = 1;
  AnswerParser parser(options);
  std::vector<AnswerEvent> events;
  parser.push("So <tool_call>{\"name\": \"now\"}</tool_call> or so.</think>", events);
  EXPECT_TRUE(parser.done());
  parser.finish(events);
  const auto parts = parts_of(events);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0], reasoning_part("So"));
  EXPECT_EQ(parts[1].name, "now");
}

TEST(AnswerParser, TellsWhetherItThinks) {
  AnswerParser parser(options_of({.format = ToolFormat::hermes}));
  std::vector<AnswerEvent> events;
  EXPECT_FALSE(parser.in_reasoning());
  parser.push("<think>a", events);
  EXPECT_TRUE(parser.in_reasoning());
  parser.push("<tool_call>", events);
  EXPECT_TRUE(parser.in_reasoning()) << "it may be a thought about calls";
  EXPECT_TRUE(parser.may_be_calls());
  parser.push("</think>", events);
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_FALSE(parser.may_be_calls());
  EXPECT_FALSE(parser.calls_ended_reasoning());
  EXPECT_TRUE(AnswerParser(options_of({.reasoning_open = true})).in_reasoning());
  AnswerParser channels(options_of({.format = ToolFormat::gpt_oss}));
  channels.push("<|channel|>analysis<|message|>a", events);
  EXPECT_TRUE(channels.in_reasoning());
  channels.push("<|end|>", events);
  EXPECT_FALSE(channels.in_reasoning());
}

TEST(AnswerFormat, ChosenByNameOrTemplate) {
  EXPECT_EQ(choose_tool_format("qwen25", ""), ToolFormat::hermes);
  EXPECT_EQ(choose_tool_format("auto", ""), ToolFormat::none);
  EXPECT_EQ(choose_tool_format("auto", "... '<tool_call>\\n' ..."), ToolFormat::hermes);
  EXPECT_EQ(
      choose_tool_format("auto", "<tool_call><function=f>\\n<parameter=p>\\nv\\n</parameter>"),
      ToolFormat::qwen3_coder);
  EXPECT_EQ(choose_tool_format("auto", "<tool_call><function=f><parameter=p>v</parameter>"),
            ToolFormat::mimo);
  EXPECT_EQ(choose_tool_format("auto", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>"),
            ToolFormat::glm45);
  EXPECT_EQ(choose_tool_format("auto", "<tool_call>f<arg_key>a</arg_key><arg_value>"),
            ToolFormat::glm47);
  EXPECT_EQ(choose_tool_format("auto", "'<minimax:tool_call>' <invoke name="),
            ToolFormat::minimax_m2);
  EXPECT_EQ(choose_tool_format("auto", "<|tool_call_begin|>f:0<|tool_call_argument_begin|>"),
            ToolFormat::kimi_k2);
  EXPECT_EQ(choose_tool_format("auto", "<｜tool▁call▁begin｜>x```json"), ToolFormat::deepseek_v3);
  EXPECT_EQ(choose_tool_format("auto", "<｜tool▁call▁begin｜>x"), ToolFormat::deepseek_v31);
  EXPECT_EQ(choose_tool_format("auto", "[TOOL_CALLS]"), ToolFormat::mistral);
  EXPECT_EQ(choose_tool_format("auto", "<|channel|>commentary json<|message|>"),
            ToolFormat::gpt_oss);
  EXPECT_EQ(choose_tool_format("auto", "'<|tool_call>call:' + f.name + '{' <tool_call|>"),
            ToolFormat::gemma4);
  EXPECT_EQ(choose_tool_format("auto", "<|python_tag|>"), ToolFormat::llama3_json);
  EXPECT_EQ(choose_tool_format("auto", "<|python_start|>"), ToolFormat::pythonic);
  EXPECT_EQ(choose_tool_format("auto",
                               "'\"parameters\": dictionary of argument name'"
                               " + '<|python_start|>' + text"),
            ToolFormat::llama3_json);
  const auto bad = choose_tool_format("qwn", "");
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().fix, ::testing::HasSubstr("hermes"));
  for (const std::string_view name : tool_format_names())
    EXPECT_TRUE(choose_tool_format(name, "").has_value()) << name;

  EXPECT_FALSE(choose_reasoning_format("auto", "no marks").value());
  EXPECT_EQ(choose_reasoning_format("auto", "a</think>b").value().open, "<think>");
  EXPECT_EQ(choose_reasoning_format("auto", "[THINK][/THINK]").value().close, "[/THINK]");
  EXPECT_FALSE(choose_reasoning_format("auto", "<|user|>{{ content }}<|end|>").value());
  EXPECT_TRUE(
      choose_reasoning_format("auto", "<|channel|>analysis<|message|>a<|end|>").value().channels);
  const ReasoningFormat gemma =
      choose_reasoning_format("auto", "'<|channel>thought\n' + x + '\n<channel|>'").value();
  EXPECT_EQ(gemma.open, "<|channel>thought");
  EXPECT_THAT(marks_of(gemma), ::testing::ElementsAre("<|channel>", "<channel|>"));
  EXPECT_TRUE(choose_reasoning_format("deepseek_r1", "").value().implied);
  EXPECT_TRUE(choose_reasoning_format("minimax_m2", "").value().implied);
  EXPECT_FALSE(choose_reasoning_format("kimi_k2", "").value().implied);
  for (const std::string_view name : reasoning_format_names()) {
    const auto format = choose_reasoning_format(name, "");
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_EQ(choose_reasoning_format(reasoning_format_name(*format), "").value(), *format);
  }
  EXPECT_FALSE(choose_reasoning_format("deep", "").has_value());
}

TEST(AnswerFormat, WhereReasoningBegins) {
  ReasoningFormat format{.open = "<think>", .close = "</think>", .implied = false};
  EXPECT_TRUE(begins_with_reasoning(format, "<|assistant|><think>\n"));
  EXPECT_FALSE(begins_with_reasoning(format, "<|assistant|>"));
  format.implied = true;
  EXPECT_TRUE(begins_with_reasoning(format, "<|assistant|>"));
  EXPECT_FALSE(begins_with_reasoning(format, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(begins_with_reasoning({}, "<think>"));
  const ReasoningFormat channels = choose_reasoning_format("gpt-oss", "").value();
  EXPECT_FALSE(begins_with_reasoning(channels, "<|end|><|start|>assistant"));
  EXPECT_TRUE(begins_with_reasoning(channels, "<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(ends_reasoning(channels, "<|start|>user<|message|>Hi<|end|>"));
  EXPECT_TRUE(ends_reasoning(channels, "<|start|>assistant<|channel|>final<|message|>"));
}

TEST(AnswerFormat, ShapesOfCallsAreReadBack) {
  for (const ToolFormat format :
       {ToolFormat::hermes, ToolFormat::deepseek_v3, ToolFormat::deepseek_v31, ToolFormat::kimi_k2,
        ToolFormat::llama3_json, ToolFormat::mistral, ToolFormat::json}) {
    const CallSyntax syntax = call_syntax(format).value();
    const auto call = [&](std::string_view name, std::string_view arguments) {
      std::string text;
      const std::string_view number = syntax.numbered ? ":3" : "";
      for (const std::string_view part :
           {syntax.open, name, number, syntax.middle, arguments, syntax.close})
        text += part;
      return text;
    };
    std::string text(syntax.first);
    text += call("now", "{}");
    text += syntax.between;
    text += call("search", R"({"query": "}"})");
    text += syntax.last;
    const auto parts = parts_of(events_of(options_of({.format = format}), {text}));
    ASSERT_EQ(parts.size(), 2u) << tool_format_name(format);
    EXPECT_EQ(parts[0].name, "now");
    EXPECT_EQ(parts[1].text, R"({"query": "}"})");
  }
  EXPECT_FALSE(call_syntax(ToolFormat::none).has_value());
}

}  // namespace
}  // namespace hocket
