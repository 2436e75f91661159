// Answers as models of each family write them: what they say, whole and however they are cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "text/answers/testing.h"

namespace hocket {
namespace {

std::vector<RecordedAnswer> hermes_answers() {
  const auto f = ToolFormat::hermes;
  return {
      {"one call",
       f,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": "
       "3}}\n</tool_call>",
       {call_part("get_weather", R"({"city": "Paris", "days": 3})")}},
      {"prose, then two calls",
       f,
       "I'll look both up.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Köln\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
       "{}}\n</tool_call>",
       {text_part("I'll look both up."), call_part("get_weather", R"({"city": "Köln"})"),
        call_part("now", "{}")}},
      {"prose on both sides",
       f,
       "First\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n\nthen more. ",
       {text_part("First"), call_part("now", "{}"), text_part("\n\n\nthen more.")}},
      {"arguments first, and as a string",
       f,
       R"(<tool_call>{"arguments": {"city": "Rome"}, "name": "get_weather"}</tool_call>)"
       R"(<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}</tool_call>)",
       {call_part("get_weather", R"({"city": "Rome"})"),
        call_part("get_weather", R"({"city": "Oslo"})")}},
      {"no arguments", f, R"(<tool_call>{"name": "now"}</tool_call>)", {call_part("now", "{}")}},
      {"marks, quotes and braces in a string",
       f,
       R"(<tool_call>{"name": "write_file", "arguments": {"path": "a.md", "content": )"
       R"("use </tool_call> and \"}}\" \\"}}</tool_call>)",
       {call_part("write_file",
                  R"({"path": "a.md", "content": "use </tool_call> and \"}}\" \\"})")}},
      {"end mark and brace forgotten",
       f,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}\n",
       {call_part("get_weather", R"({"city": "Bonn"})")}},
      {"a brace too many",
       f,
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}}\n</tool_call> done",
       {call_part("now", "{}"), text_part(" done")}},
      {"raw line ends and wild escapes",
       f,
       "<tool_call>{\"name\": \"write_file\", \"arguments\": {\"path\": \"r\", \"content\": "
       "\"a\nb\\d+\"}}</tool_call>",
       {call_part("write_file", R"({"path": "r", "content": "a\nb\\d+"})")},
       false,
       true},
      {"thoughts, then a call",
       f,
       "<think>\nThe user wants the time.\n</think>\n\n<tool_call>\n{\"name\": \"now\", "
       "\"arguments\": {}}\n</tool_call>",
       {thought("The user wants the time."), call_part("now", "{}")}},
      {"thoughts that a call ends",
       f,
       "Let me see.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       {thought("Let me see."), call_part("now", "{}")},
       true},
      {"a tool that is none",
       f,
       R"(<tool_call>{"name": "fly", "arguments": {"to": 1}}</tool_call>)",
       {call_part("fly", R"({"to": 1})")},
       false,
       true},
      {"halves of pairs",
       f,
       R"(<tool_call>{"name": "search", "arguments": {"query": "\ud83d\ude00 \ud83d \ude00"}})"
       "</tool_call>",
       {call_part("search", R"({"query": "\ud83d\ude00 \ufffd \ufffd"})")},
       false,
       true},
  };
}

std::vector<RecordedAnswer> xml_answers() {
  const auto f = ToolFormat::qwen3_coder;
  return {
      {"one call",
       f,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
       {call_part("get_weather", R"({"city": "Paris", "days": 3})")}},
      {"code, line by line",
       f,
       "I'll write it.\n\n<tool_call>\n<function=write_file>\n<parameter=path>\nsrc/a.py\n"
       "</parameter>\n<parameter=content>\ndef f(x):\n    return \"<b>\" if x < 3 else '\\n'\n\n"
       "</parameter>\n</function>\n</tool_call>",
       {text_part("I'll write it."),
        call_part("write_file",
                  R"({"path": "src/a.py", "content": "def f(x):\n    return \"<b>\" if x < 3 )"
                  R"(else '\\n'\n"})")}},
      {"every type",
       f,
       "<tool_call>\n<function=search>\n<parameter=query>\n42\n</parameter>\n<parameter=filters>\n"
       "{\"lang\": \"en\", \"year\": {\"min\": 2020}}\n</parameter>\n<parameter=tags>\n['a', "
       "\"b\"]\n</parameter>\n<parameter=fuzzy>\nTrue\n</parameter>\n<parameter=limit>\nnull\n"
       "</parameter>\n</function>\n</tool_call>",
       {call_part("search", R"({"query": "42", "filters": {"lang": "en", "year": {"min": 2020}}, )"
                            R"("tags": ["a", "b"], "fuzzy": true, "limit": null})")}},
      {"without the outer mark, no parameters",
       f,
       "<function=now>\n</function>",
       {call_part("now", "{}")}},
      {"two calls",
       f,
       "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n"
       "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
       {call_part("now", "{}"), call_part("get_weather", R"({"city": "Bern"})")}},
      {"forgotten ends",
       f,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n<parameter=days>\n2\n"
       "</function>\n</tool_call>",
       {call_part("get_weather", R"({"city": "Bern", "days": 2})")}},
      {"JSON after all",
       f,
       R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)",
       {call_part("now", "{}")}},
      {"MiMo",
       ToolFormat::mimo,
       "<tool_call>\n<function=write_file>\n<parameter=path>a &amp; b</parameter>\n"
       "<parameter=content>if (a &lt; b) {\n}\n</parameter>\n<parameter=mode>null</parameter>\n"
       "</function>\n</tool_call>",
       {call_part("write_file",
                  R"({"path": "a & b", "content": "if (a < b) {\n}\n", "mode": null})")}},
      {"GLM",
       ToolFormat::glm45,
       "\n<think>Two things.</think>\nChecking.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
       "<arg_value>北京</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
       "</tool_call>\n<tool_call>now\n</tool_call>",
       {thought("Two things."), text_part("Checking."),
        call_part("get_weather", R"({"city": "北京", "days": 2})"), call_part("now", "{}")}},
      {"GLM on one line",
       ToolFormat::glm45,
       "<tool_call>search<arg_key>query</arg_key><arg_value> a </arg_value><arg_key>tags</arg_key>"
       "<arg_value>[\"x\", 1]</arg_value></tool_call>",
       {call_part("search", R"({"query": " a ", "tags": ["x", 1]})")}},
  };
}

std::vector<RecordedAnswer> deepseek_answers() {
  return {
      {"V3, two calls",
       ToolFormat::deepseek_v3,
       "Let me check.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
       "```json\n{\"city\": \"Tokyo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
       "<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {text_part("Let me check."), call_part("get_weather", R"({"city": "Tokyo"})"),
        call_part("get_weather", R"({"city": "Paris"})")}},
      {"R1, thoughts first",
       ToolFormat::deepseek_v3,
       "Hm, the "
       "time.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
       "now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {thought("Hm, the time."), call_part("now", "{}")},
       true},
      {"V3.1, two calls",
       ToolFormat::deepseek_v31,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Tokyo\", "
       "\"days\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {call_part("get_weather", R"({"city": "Tokyo", "days": 1})"), call_part("now", "{}")}},
      {"marks forgotten",
       ToolFormat::deepseek_v31,
       "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁calls▁end｜>ok",
       {call_part("now", "{}"), text_part("ok")}},
  };
}

std::vector<RecordedAnswer> list_answers() {
  return {
      {"Llama, bare",
       ToolFormat::llama3_json,
       R"({"name": "get_weather", "parameters": {"city": "Lyon"}})",
       {call_part("get_weather", R"({"city": "Lyon"})")}},
      {"Llama, marked, two",
       ToolFormat::llama3_json,
       R"(<|python_tag|>{"type": "function", "name": "now", "parameters": {}}; )"
       R"({"name": "get_weather", "parameters": {"city": "Lyon", "days": 2}})",
       {call_part("now", "{}"), call_part("get_weather", R"({"city": "Lyon", "days": 2})")}},
      {"Llama, JSON that is no call",
       ToolFormat::llama3_json,
       "\n{\"city\": \"Lyon\", \"name\": \"now\"}",
       {text_part("\n{\"city\": \"Lyon\", \"name\": \"now\"}")},
       false,
       true},
      {"Llama, prose",
       ToolFormat::llama3_json,
       "It is {\"name\": \"now\"}.\n",
       {text_part("It is {\"name\": \"now\"}.\n")}},
      {"pythonic",
       ToolFormat::pythonic,
       R"([get_weather(city="Lyon", days=2), search(query='it\'s, "x"', tags=['a', 1.5, None], )"
       R"(filters={'k': (1, 2)}, fuzzy=True), now()])",
       {call_part("get_weather", R"({"city": "Lyon", "days": 2})"),
        call_part("search",
                  R"({"query": "it's, \"x\"", "tags": ["a", 1.5, null], "filters": {"k": [1, 2]}, )"
                  R"("fuzzy": true})"),
        call_part("now", "{}")}},
      {"pythonic, marked, long strings",
       ToolFormat::pythonic,
       "<|python_start|>[write_file(path=\"\", content=\"\"\"say \"hi\", (ok)\n\"\"\")]"
       "<|python_end|>",
       {call_part("write_file", R"({"path": "", "content": "say \"hi\", (ok)\n"})")}},
      {"pythonic, a list that is no call",
       ToolFormat::pythonic,
       "[1] see below",
       {text_part("[1] see below")},
       false,
       true},
      {"Mistral, a list",
       ToolFormat::mistral,
       R"(Sure.[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Nice"}}, )"
       R"({"name": "now", "arguments": {}, "id": "abcdefghi"}])",
       {text_part("Sure."), call_part("get_weather", R"({"city": "Nice"})"),
        call_part("now", "{}")}},
      {"Mistral, by name",
       ToolFormat::mistral,
       R"([TOOL_CALLS]get_weather[ARGS]{"city": "Nice"}[TOOL_CALLS]now[CALL_ID]123[ARGS]{})"
       R"([TOOL_CALLS]now{})",
       {call_part("get_weather", R"({"city": "Nice"})"), call_part("now", "{}"),
        call_part("now", "{}")}},
      {"a list that a grammar made",
       ToolFormat::json,
       R"([{"name": "now", "parameters": {}}, {"name": "get_weather", "arguments": {"days": 1}}])",
       {call_part("now", "{}"), call_part("get_weather", R"({"days": 1})")}},
      {"an object that a grammar made",
       ToolFormat::json,
       R"({"name": "now", "arguments": {}})",
       {call_part("now", "{}")}},
  };
}

std::vector<RecordedAnswer> plain_answers() {
  std::vector<RecordedAnswer> all;
  for (int i = 0; i <= static_cast<int>(ToolFormat::json); ++i) {
    const auto f = static_cast<ToolFormat>(i);
    const std::string of = " of " + std::string(tool_format_name(f));
    all.push_back({"prose" + of,
                   f,
                   " Plain < text, a <tool, [x] and {y}.\n\n",
                   {text_part(" Plain < text, a <tool, [x] and {y}.\n\n")}});
    all.push_back({"thoughts" + of,
                   f,
                   "<think>\nOne\n\ntwo </thin\n</think>\n\nThree\n",
                   {thought("One\n\ntwo </thin"), text_part("Three\n")}});
    all.push_back({"nothing" + of, f, "", {}});
    all.push_back({"thoughts only" + of, f, "Never done \n", {thought("Never done")}, true});
    all.push_back(
        {"opened twice" + of, f, "<think>a</think>b", {thought("a"), text_part("b")}, true});
  }
  return all;
}

std::vector<RecordedAnswer> broken_answers() {
  const auto text_only = [](std::string name, ToolFormat f, std::string text) {
    return RecordedAnswer{std::move(name), f, text, {text_part(text)}, false, true};
  };
  return {
      text_only("cut in the arguments", ToolFormat::hermes,
                "Hm\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa"),
      text_only("cut before the name", ToolFormat::hermes, "<tool_call>\n{\"na"),
      text_only("cut behind the mark", ToolFormat::hermes, "<tool_call>\n"),
      text_only("no JSON", ToolFormat::hermes, "<tool_call>get_weather(Paris)</tool_call>\n"),
      text_only("Python's quotes", ToolFormat::hermes,
                "<tool_call>{'name': 'now'}</tool_call> sorry"),
      text_only("no name", ToolFormat::hermes,
                "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>"),
      text_only("arguments that are none", ToolFormat::hermes,
                "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"),
      {"a broken call, then a good one",
       ToolFormat::hermes,
       "<tool_call>{\"name\": \"now\", <tool_call>{\"name\": \"now\", \"arguments\": {}}"
       "</tool_call>",
       {text_part("<tool_call>{\"name\": \"now\","), call_part("now", "{}")},
       false,
       true},
      text_only("cut in a value", ToolFormat::qwen3_coder,
                "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n"
                "<parameter=content>\nhello"),
      text_only("prose between parameters", ToolFormat::qwen3_coder,
                "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\nand "
                "so on</function>"),
      text_only("cut in a key", ToolFormat::glm45, "<tool_call>now\n<arg_key>ci"),
      text_only("no value", ToolFormat::glm45,
                "<tool_call>now\n<arg_key>city</arg_key>\n</tool_call>"),
      text_only("cut in a fence", ToolFormat::deepseek_v3,
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```js"),
      text_only("cut in JSON", ToolFormat::deepseek_v31,
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a\": "),
      text_only("code behind the tag", ToolFormat::llama3_json,
                "<|python_tag|>brave_search.call(query=\"x\")"),
      text_only("a positional argument", ToolFormat::pythonic, "[get_weather(\"Paris\")]"),
      text_only("no literal", ToolFormat::pythonic, "[get_weather(city=here)]"),
      text_only("a name and nothing more", ToolFormat::mistral, "[TOOL_CALLS]now"),
      text_only("a list cut short", ToolFormat::mistral, "[TOOL_CALLS] [{\"name\": \"now\""),
  };
}

std::vector<RecordedAnswer> all_answers() {
  std::vector<RecordedAnswer> all;
  for (auto list : {hermes_answers(), xml_answers(), deepseek_answers(), list_answers(),
                    plain_answers(), broken_answers()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<AnswerPart> without_ids(std::vector<AnswerPart> parts) {
  for (AnswerPart& part : parts) part.id.clear();
  return parts;
}

TEST(RecordedAnswers, SayWhatTheyMean) {
  for (const RecordedAnswer& answer : all_answers()) {
    SCOPED_TRACE(answer.name);
    AnswerParser parser(options_of(answer));
    std::vector<AnswerEvent> events;
    parser.push(answer.text, events);
    parser.finish(events);
    EXPECT_THAT(without_ids(parts_of(events)), ::testing::ElementsAreArray(answer.parts));
    EXPECT_EQ(!parser.warnings().empty(), answer.warns);
  }
}

TEST(RecordedAnswers, SayTheSameHoweverTheyAreCut) {
  size_t num_cuts = 0;
  for (const RecordedAnswer& answer : all_answers()) {
    SCOPED_TRACE(answer.name);
    const auto options = options_of(answer);
    const std::string_view text = answer.text;
    const auto whole = joined_events(events_of(options, {text}));
    for (size_t cut = 0; cut <= text.size(); ++cut, ++num_cuts)
      ASSERT_EQ(joined_events(events_of(options, {text.substr(0, cut), text.substr(cut)})), whole)
          << "cut at " << cut;
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    ASSERT_EQ(joined_events(events_of(options, bytes)), whole) << "in single bytes";
  }
  EXPECT_GT(num_cuts, 5000u);
}

TEST(RecordedAnswers, WholeCallsAreJsonAndBrokenOnesAreNot) {
  for (const RecordedAnswer& answer : all_answers()) {
    // Each end of the text stands for a limit that cut the answer there.
    for (size_t end = 0; end <= answer.text.size(); ++end) {
      SCOPED_TRACE(answer.name + " up to " + std::to_string(end));
      std::string arguments;
      std::set<std::string> ids;
      for (const AnswerEvent& event :
           events_of(options_of(answer), {std::string_view(answer.text).substr(0, end)})) {
        switch (event.kind) {
          case AnswerEvent::Kind::call:
            arguments.clear();
            EXPECT_FALSE(event.name.empty());
            EXPECT_TRUE(ids.insert(event.id).second);
            break;
          case AnswerEvent::Kind::arguments:
            arguments += event.text;
            break;
          case AnswerEvent::Kind::call_end:
            EXPECT_TRUE(nlohmann::json::parse(arguments, nullptr, false).is_object()) << arguments;
            break;
          case AnswerEvent::Kind::call_broken:
            EXPECT_TRUE(nlohmann::json::parse(arguments, nullptr, false).is_discarded())
                << arguments;
            break;
          default:
            break;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hocket
