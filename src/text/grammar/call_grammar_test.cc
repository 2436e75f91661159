// Tests grammars of calls for every family: they allow what the tool's schema allows, and the
// family's parser reads it back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/source_dir_testing.h"
#include "text/answers/answer_parser.h"
#include "text/answers/call_syntax.h"
#include "text/grammar/answer_rules.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;
using PlainJson = nlohmann::json;

const std::vector<Tool>& tools() {
  static const std::vector<Tool> kStrictTools = {
      {.name = "book",
       .description = {},
       .parameters = R"({"type":"object","$defs":{"day":{"enum":["mon","tue/wed"]}},"properties":{
           "city":{"type":"string"},
           "days":{"type":"integer","minimum":1,"maximum":9},
           "day":{"$ref":"#/$defs/day"},
           "note":{"anyOf":[{"type":"string"},{"type":"null"}]},
           "code":{"type":"string","pattern":"^[A-Z]{2}$"},
           "short":{"type":"string","maxLength":3},
           "fast":{"type":"boolean"},
           "with":{"type":"array","items":{"type":"object","properties":{"age":{"type":"integer"}},
               "required":["age"],"additionalProperties":false}}},
         "required":["city","days"],"additionalProperties":false})",
       .strict = true},
      {.name = "now", .description = {}, .parameters = "", .strict = true}};
  return kStrictTools;
}

// A text, and the arguments of the calls in it.
struct CallText {
  std::string text;
  std::vector<std::string> arguments;
};

std::vector<std::string> arguments_in(const std::string& text, ToolFormat format) {
  AnswerParser parser({.tools_as = format,
                       .reasoning = {},
                       .tools = std::make_shared<const std::vector<Tool>>(tools())});
  std::vector<AnswerEvent> events;
  parser.push(text, events);
  parser.finish(events);
  AnswerParts parts;
  for (const AnswerEvent& event : events) parts.add(event);
  std::vector<std::string> out;
  for (const AnswerPart& part : parts.parts()) {
    EXPECT_EQ(part.kind, AnswerPart::Kind::call) << part.text;
    out.push_back(part.text);
  }
  return out;
}

void expect(const TestVocabulary& v, ToolFormat format, const std::vector<CallText>& good,
            const std::vector<std::string>& bad) {
  SCOPED_TRACE(tool_format_name(format));
  const auto made = grammar_of_answer({.tools = tools(),
                                       .choice = {.kind = ToolChoice::Kind::required, .name = {}},
                                       .format = format,
                                       .text = nullptr,
                                       .reasoning = {}},
                                      v.tokenizer());
  ASSERT_TRUE(made) << made.error().message;
  const auto grammar = v.vocabulary().compile(**made);
  ASSERT_TRUE(grammar) << grammar.error().message << "\n" << (*made)->text;
  for (const auto& [text, arguments] : good) {
    EXPECT_TRUE(v.takes(**grammar, text)) << text;
    const auto found = arguments_in(text, format);
    ASSERT_EQ(found.size(), arguments.size()) << text;
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(PlainJson::parse(found[i], nullptr, false), PlainJson::parse(arguments[i])) << text;
  }
  for (const std::string& text : bad) EXPECT_FALSE(v.takes(**grammar, text)) << text;
}

std::string with(std::string text, std::string_view name, std::string_view arguments) {
  for (const auto& [from, to] :
       {std::pair<std::string_view, std::string_view>{"NAME", name}, {"ARGS", arguments}})
    text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(CallGrammar, OfFamiliesThatWriteJson) {
  const TestVocabulary qwen("qwen2"), deepseek("deepseek_v3"), llama("llama3");
  const std::string good = R"({"city": "Paris", "days": 3, "code": "FR", "with": [{"age": 7}]})";
  const std::tuple<const TestVocabulary*, ToolFormat, std::string, std::string> families[] = {
      {&qwen, ToolFormat::hermes,
       "<tool_call>\n{\"name\": \"NAME\", \"arguments\": ARGS}\n</tool_call>", "\n"},
      {&llama, ToolFormat::llama3_json, R"({"name": "NAME", "parameters": ARGS})", "; "},
      {&deepseek, ToolFormat::deepseek_v31,
       "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS<｜tool▁call▁end｜>", ""},
      {&deepseek, ToolFormat::deepseek_v3,
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGS\n```<｜tool▁call▁end｜>",
       "\n"},
      {&qwen, ToolFormat::mistral, R"({"name": "NAME", "arguments": ARGS})", ", "},
      {&qwen, ToolFormat::json, R"({"name": "NAME", "arguments": ARGS})", ", "}};
  for (const auto& [v, format, call, between] : families) {
    const CallSyntax syntax = call_syntax(format).value();
    const auto listed = [&](const std::string& calls) {
      return std::string(syntax.first) + calls + std::string(syntax.last);
    };
    const std::string book = with(call, "book", good), now = with(call, "now", "{}");
    expect(*v, format,
           {{listed(book), {good}},
            {listed(now), {"{}"}},
            {listed(book + between + now), {good, "{}"}}},
           {"", listed(""), book + "x", listed(with(call, "fly", "{}")),
            listed(with(call, "book", R"({"city": "Paris"})")),
            listed(with(call, "book", R"({"city": "Paris", "days": 10})")),
            listed(with(call, "book", R"({"city": "Paris", "days": 1, "day": "sun"})"))});
  }
}

enum class Flagged : uint8_t { no, yes };

// Makes a tokenizer of the tests that also has these marks as tokens; returns its folder.
std::string folder_with(const char* tokenizer_name, const std::vector<const char*>& marks,
                        Flagged flagged) {
  namespace fs = std::filesystem;
  const fs::path from = source_dir() / "tests/golden/tokenizers" / tokenizer_name;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path to =
      fs::path(::testing::TempDir()) / (std::string(tokenizer_name) + "_" + test->name());
  fs::create_directories(to);
  fs::copy_file(from / "tokenizer_config.json", to / "tokenizer_config.json",
                fs::copy_options::overwrite_existing);
  PlainJson tokenizer = PlainJson::parse(std::ifstream(from / "tokenizer.json"));
  int next = 0;
  for (const PlainJson& token : tokenizer["added_tokens"])
    next = std::max(next, token["id"].get<int>() + 1);
  for (const char* mark : marks) {
    PlainJson token = tokenizer["added_tokens"].back();
    token["id"] = next++;
    token["content"] = mark;
    token["special"] = flagged == Flagged::yes;
    tokenizer["added_tokens"].push_back(token);
  }
  std::ofstream(to / "tokenizer.json") << tokenizer.dump();
  return to.string();
}

TEST(CallGrammar, OfMistralThatHasATokenForArguments) {
  const TestVocabulary v(folder_with("qwen2", {"[TOOL_CALLS]", "[ARGS]"}, Flagged::yes).c_str());
  ASSERT_TRUE(v.tokenizer().is_special(*v.tokenizer().find("[ARGS]")));
  const std::string book = R"([TOOL_CALLS]book[ARGS]{"city": "Paris", "days": 3})";
  const std::string arguments = R"({"city":"Paris","days":3})";
  expect(v, ToolFormat::mistral,
         {{book, {arguments}}, {book + "[TOOL_CALLS]now[ARGS]{}", {arguments, "{}"}}},
         {"[TOOL_CALLS]book[ARGS]{}", "[TOOL_CALLS][]", "[TOOL_CALLS]book{}"});
}

TEST(CallGrammar, OfDeepSeekWhereMarksAreTokens) {
  const TestVocabulary v(
      folder_with("deepseek_v3", {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
                  Flagged::no)
          .c_str());
  ASSERT_TRUE(v.tokenizer().find("<｜tool▁sep｜>"));
  const std::string call =
      "<｜tool▁call▁begin｜>book<｜tool▁sep｜>{\"city\": \"Paris\", \"days\": "
      "3}<｜tool▁call▁end｜>";
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
  const std::string arguments = R"({"city":"Paris","days":3})";
  expect(v, ToolFormat::deepseek_v31,
         {{begin + call + end, {arguments}}, {begin + call + call + end, {arguments, arguments}}},
         {call, begin + call, begin + end});
  const std::string fenced =
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>";
  expect(v, ToolFormat::deepseek_v3,
         {{begin + fenced + end, {"{}"}}, {begin + fenced + "\n" + fenced + end, {"{}", "{}"}}},
         {begin + fenced});
}

std::string xml_call(const std::string& name, const std::string& parameters) {
  return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
}

TEST(CallGrammar, OfQwen3Coder) {
  const TestVocabulary v;
  const auto p = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const std::string least = p("city", "Paris\n<b> & \"x\"") + p("days", "3");
  const std::string least_json = R"({"city":"Paris\n<b> & \"x\"","days":3})";
  expect(
      v, ToolFormat::qwen3_coder,
      {{xml_call("book", least), {least_json}},
       {xml_call("now", ""), {"{}"}},
       {xml_call("now", "") + "\n" + xml_call("book", least), {"{}", least_json}},
       {xml_call("book", least + p("day", "tue/wed") + p("note", "null") + p("code", "FR") +
                             p("short", "abc") + p("fast", "true") + p("with", "[{\"age\": 7}]")),
        {R"({"city":"Paris\n<b> & \"x\"","days":3,"day":"tue/wed","note":null,"code":"FR",
                "short":"abc","fast":true,"with":[{"age":7}]})"}},
       {xml_call("book", p("city", "") + p("days", "1") + p("note", "so\n\nso")),
        {R"({"city":"","days":1,"note":"so\n\nso"})"}}},
      {xml_call("book", p("city", "Paris")), xml_call("book", p("city", "x") + p("days", "x")),
       xml_call("book", least + p("day", "sun")), xml_call("book", least + p("code", "fr")),
       xml_call("book", least + p("short", "abcd")), xml_call("book", least + p("with", "[{}]")),
       xml_call("book", least + p("more", "x")), xml_call("fly", ""), xml_call("now", p("a", "b")),
       "Hi"});
}

TEST(CallGrammar, OfMiMo) {
  const TestVocabulary v;
  const auto p = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">" + value + "</parameter>\n";
  };
  expect(v, ToolFormat::mimo,
         {{xml_call("book", p("city", "a &lt; b\n&amp; c") + p("days", "3") + p("day", "mon")),
           {R"({"city":"a < b\n& c","days":3,"day":"mon"})"}},
          {xml_call("now", ""), {"{}"}}},
         {xml_call("book", p("city", "a < b") + p("days", "3")),
          xml_call("book", p("city", "a") + p("days", "\n3"))});
}

TEST(CallGrammar, OfGlm) {
  const TestVocabulary v;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>" + name + "\n" + arguments + "</tool_call>";
  };
  const auto a = [](const std::string& name, const std::string& value) {
    return "<arg_key>" + name + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
  };
  const std::string least = a("city", "北京 <b>\n") + a("days", "2");
  expect(v, ToolFormat::glm45,
         {{call("book", least + a("fast", "false") + a("with", "[]")),
           {R"({"city":"北京 <b>\n","days":2,"fast":false,"with":[]})"}},
          {call("now", "") + "\n" + call("now", ""), {"{}", "{}"}}},
         {call("book", a("city", "x")), call("book", least + a("day", "sun")),
          call("book", least + a("fast", "maybe")), call("fly", "")});
}

TEST(CallGrammar, OfGlmOnOneLine) {
  const TestVocabulary v;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>" + name + arguments + "</tool_call>";
  };
  const auto a = [](const std::string& name, const std::string& value) {
    return "<arg_key>" + name + "</arg_key><arg_value>" + value + "</arg_value>";
  };
  const std::string least = a("city", "北京 <b>\n") + a("days", "2");
  const std::string least_json = R"({"city":"北京 <b>\n","days":2})";
  expect(v, ToolFormat::glm47,
         {{call("book", least), {least_json}},
          {call("now", "") + call("book", least), {"{}", least_json}}},
         {call("book", a("city", "x")), call("book", least + a("day", "sun")), call("fly", ""),
          call("now", "\n"), call("now", "") + "\n" + call("now", "")});
}

TEST(CallGrammar, OfMiniMax) {
  const TestVocabulary text,
      tokens(folder_with("qwen2", {"<minimax:tool_call>", "</minimax:tool_call>"}, Flagged::yes)
                 .c_str());
  const auto calls = [](const std::string& invokes) {
    return "<minimax:tool_call>\n" + invokes + "</minimax:tool_call>";
  };
  const auto invoke = [](const std::string& name, const std::string& parameters) {
    return "<invoke name=\"" + name + "\">\n" + parameters + "</invoke>\n";
  };
  const auto p = [](const std::string& name, const std::string& value) {
    return "<parameter name=\"" + name + "\">" + value + "</parameter>\n";
  };
  const std::string least = p("city", "\nParis <b> & \"x\"\n") + p("days", "3");
  const std::string least_json = R"({"city":"\nParis <b> & \"x\"\n","days":3})";
  for (const TestVocabulary* v : {&text, &tokens})
    expect(*v, ToolFormat::minimax_m2,
           {{calls(invoke("book", least)), {least_json}},
            {calls(invoke("now", "") + invoke("book", least)), {"{}", least_json}},
            {calls(invoke("book", p("city", "") + p("days", "1") + p("day", "tue/wed") +
                                      p("note", "null") + p("code", "FR") + p("short", "abc") +
                                      p("fast", "true") + p("with", "[{\"age\": 7}]"))),
             {R"({"city":"","days":1,"day":"tue/wed","note":null,"code":"FR","short":"abc",
                  "fast":true,"with":[{"age":7}]})"}}},
           {calls(""), invoke("now", ""), "<minimax:tool_call>\n" + invoke("now", ""),
            calls(invoke("book", p("city", "x"))),
            calls(invoke("book", p("city", "x") + p("days", "x"))),
            calls(invoke("book", least + p("day", "sun"))),
            calls(invoke("book", least + p("code", "fr"))), calls(invoke("fly", "")),
            calls(invoke("book", p("city", "x\n</invoke>") + p("days", "1"))),
            calls(invoke("now", p("a", "b")))});
}

TEST(CallGrammar, OfKimi) {
  const TestVocabulary text,
      tokens(
          folder_with("qwen2",
                      {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                       "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
                      Flagged::yes)
              .c_str());
  const auto call = [](const std::string& id, const std::string& arguments) {
    return "<|tool_call_begin|>" + id + "<|tool_call_argument_begin|>" + arguments +
           "<|tool_call_end|>";
  };
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>";
  const std::string book = R"({"city": "Paris", "days": 3})";
  for (const TestVocabulary* v : {&text, &tokens})
    expect(
        *v, ToolFormat::kimi_k2,
        {{begin + call("functions.book:0", book) + end, {book}},
         {begin + call("functions.now:17", "{}") + call("functions.book:18", book) + end,
          {"{}", book}}},
        {begin + end, call("functions.now:0", "{}"), begin + call("functions.now:0", "{}"),
         begin + call("now:0", "{}") + end, begin + call("functions.now", "{}") + end,
         begin + call("functions.now:007", "{}") + end, begin + call("functions.fly:0", "{}") + end,
         begin + call("functions.book:0", "{}") + end});
}

TEST(CallGrammar, OfGptOss) {
  const TestVocabulary text,
      tokens(folder_with("qwen2",
                         {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                          "<|call|>", "<|return|>"},
                         Flagged::yes)
                 .c_str());
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" +
           arguments;
  };
  const std::string book = R"({"city": "Paris", "days": 3, "note": "<b>"})";
  for (const TestVocabulary* v : {&text, &tokens})
    expect(*v, ToolFormat::gpt_oss, {{call("book", book), {book}}, {call("now", "{}"), {"{}"}}},
           {"", book, call("fly", "{}"), call("book", "{}"), call("now", "{\"a\": 1}"),
            call("now", "{}") + "<|call|>",
            call("now", "{}") + "<|start|>assistant" + call("now", "{}")});
}

TEST(CallGrammar, OfPythonicModels) {
  const TestVocabulary v;
  expect(v, ToolFormat::pythonic,
         {{R"([book(city="Paris", days=3)])", {R"({"city":"Paris","days":3})"}},
          {R"([book(city="a \"b\"\n", days=3, fast=True, with=[{"age": 7}]), now()])",
           {R"({"city":"a \"b\"\n","days":3,"fast":true,"with":[{"age":7}]})", "{}"}},
          {R"([book(city="x", days=1, note=null)])", {R"({"city":"x","days":1,"note":null})"}}},
         {"[]", "[book()]", R"([book(city="Paris", days=0)])", "[now(a=1)]", "now()",
          R"([book(days=3, city="Paris")])", R"([book(city="Paris",days=3)])"});
}

TEST(CallGrammar, ArgumentsPartedByCommasMayBeLeftOut) {
  const TestVocabulary v;
  const std::vector<Tool> all = {
      {.name = "f",
       .description = {},
       .parameters =
           R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},
                         "c":{"type":"integer"},"d":{"type":"integer"}},"required":["c"]})",
       .strict = true},
      {.name = "g",
       .description = {},
       .parameters = R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})",
       .strict = true}};
  const auto made = grammar_of_answer({.tools = all,
                                       .choice = {.kind = ToolChoice::Kind::required, .name = {}},
                                       .format = ToolFormat::pythonic,
                                       .text = nullptr,
                                       .reasoning = {}},
                                      v.tokenizer());
  ASSERT_TRUE(made) << made.error().message;
  const auto grammar = v.vocabulary().compile(**made);
  ASSERT_TRUE(grammar) << grammar.error().message << "\n" << (*made)->text;
  const auto text = [](unsigned chosen, const std::string& names) {
    std::string out;
    for (size_t i = 0; i < names.size(); ++i)
      if (chosen >> i & 1) out += (out.empty() ? "" : ", ") + std::string(1, names[i]) + "=1";
    return out;
  };
  for (unsigned chosen = 0; chosen < 16; ++chosen)
    EXPECT_EQ(v.takes(**grammar, "[f(" + text(chosen, "abcd") + ")]"), (chosen >> 2 & 1) == 1)
        << chosen;
  for (unsigned chosen = 0; chosen < 4; ++chosen)
    EXPECT_TRUE(v.takes(**grammar, "[g(" + text(chosen, "ab") + ")]")) << chosen;
}

}  // namespace
}  // namespace hocket
