// Checks the events of answers as models of each family write them (tests/answers), whole and cut
// in every way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "text/answers/testing.h"

namespace hocket {
namespace {

std::vector<RecordedAnswer> recorded_answers() {
  const auto part_of = [](const nlohmann::json& part) {
    if (part.contains("text")) return text_part(part["text"]);
    if (part.contains("thought")) return reasoning_part(part["thought"]);
    return call_part(part["call"], part["arguments"]);
  };
  const nlohmann::json file = recorded_file();
  std::vector<RecordedAnswer> all;
  for (const nlohmann::json& one : file["answers"]) {
    RecordedAnswer& answer = all.emplace_back(
        RecordedAnswer{.name = one["name"],
                       .format = choose_tool_format(one["format"].get<std::string>(), "").value(),
                       .text = one["text"],
                       .parts = {},
                       .reasoning_open = one.value("reasoning_open", false),
                       .warns = one.value("warns", false),
                       .reasoning = one.value("reasoning", "")});
    for (const nlohmann::json& part : one["parts"]) answer.parts.push_back(part_of(part));
  }
  return all;
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
    all.push_back({"nothing" + of, f, "", {}});
    if (f == ToolFormat::gpt_oss) continue;  // its reasoning has other marks
    all.push_back({"thoughts" + of,
                   f,
                   "<think>\nOne\n\ntwo </thin\n</think>\n\nThree\n",
                   {reasoning_part("One\n\ntwo </thin"), text_part("Three\n")}});
    all.push_back({"thoughts only" + of, f, "Never done \n", {reasoning_part("Never done")}, true});
    all.push_back(
        {"opened twice" + of, f, "<think>a</think>b", {reasoning_part("a"), text_part("b")}, true});
  }
  return all;
}

// Values that contain the mark that ends values; other parsers end the value there.
std::vector<RecordedAnswer> answers_with_marks_in_values() {
  const auto xml = [](ToolFormat format, const std::string& name, const std::string& parameters) {
    return RecordedAnswer{
        .name = "marks in values of " + std::string(tool_format_name(format)),
        .format = format,
        .text = "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>",
        .parts = {}};
  };
  std::vector<RecordedAnswer> all = {
      xml(ToolFormat::qwen3_coder, "write_file",
          "<parameter=path>\na</parameter></parameter>\n<parameter=content>\n"
          "  <parameter> ends\n</parameter>\n here: </parameter> </tool_x\n</parameter>\n"),
      xml(ToolFormat::qwen3_coder, "search",
          "<parameter=query>\n</parameter>\n\n  </\n</parameter>\n"
          "<parameter=filters>\n{\"lang\": \"</parameter>\"}\n</parameter>\n"),
      xml(ToolFormat::mimo, "write_file",
          "<parameter=path>&lt;</parameter>&gt;</parameter><parameter=mode>x</parameter> y"
          "</parameter>\n")};
  all[0].parts = {call_part("write_file",
                            "{\"path\": \"a</parameter>\", \"content\": \"  <parameter> ends\\n"
                            "</parameter>\\n here: </parameter> </tool_x\"}")};
  all[1].parts = {call_part("search",
                            "{\"query\": \"</parameter>\\n\\n  </\", "
                            "\"filters\": {\"lang\": \"</parameter>\"}}")};
  all[2].parts = {
      call_part("write_file", R"({"path": "<</parameter>>", "mode": "x</parameter> y"})")};
  all.push_back({.name = "marks in values of glm45",
                 .format = ToolFormat::glm45,
                 .text = "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a</arg_value> "
                         "</arg_valuable></arg_value>\n<arg_key>filters</arg_key>\n"
                         "<arg_value>{\"lang\": \"</arg_value>\"}</arg_value>\n</tool_call>",
                 .parts = {call_part("search", R"({"query": "a</arg_value> </arg_valuable>", )"
                                               R"("filters": {"lang": "</arg_value>"}})")}});
  return all;
}

std::vector<RecordedAnswer> all_answers() {
  std::vector<RecordedAnswer> all = recorded_answers();
  EXPECT_GT(all.size(), 50u);
  for (const RecordedAnswer& answer : plain_answers()) all.push_back(answer);
  for (const RecordedAnswer& answer : answers_with_marks_in_values()) all.push_back(answer);
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
    // Each prefix of the text stands for an answer that a limit cut there.
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
