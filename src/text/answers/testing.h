// Data and functions that the tests of the parsers share.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/source_dir_testing.h"
#include "text/answers/answer_parser.h"

namespace hocket {

// One answer and the parts that it has.
struct RecordedAnswer {
  std::string name;
  ToolFormat format = ToolFormat::none;
  std::string text;
  std::vector<AnswerPart> parts;  // without ids
  bool reasoning_open = false;
  bool warns = false;
  std::string reasoning = {};  // a name of a format; empty: the usual one
};

inline nlohmann::json recorded_file() {
  return nlohmann::json::parse(std::ifstream(source_dir() / "tests/answers/recorded.json"));
}

inline std::shared_ptr<const std::vector<Tool>> recorded_tools() {
  static const auto tools = [] {
    const nlohmann::json file = recorded_file();
    auto read = std::make_shared<std::vector<Tool>>();
    for (const nlohmann::json& tool : file["tools"])
      read->push_back({.name = tool["name"],
                       .description = tool["description"],
                       .parameters = tool["parameters"].is_null() ? "" : tool["parameters"].dump(),
                       .strict = false});
    return read;
  }();
  return tools;
}

inline ReasoningFormat reasoning_of(const RecordedAnswer& answer) {
  const std::string_view usual = answer.format == ToolFormat::gpt_oss ? "gpt-oss" : "think";
  return choose_reasoning_format(
             answer.reasoning.empty() ? usual : std::string_view(answer.reasoning), "")
      .value();
}

inline AnswerParser::Options options_of(const RecordedAnswer& answer) {
  return {.tools_as = answer.format,
          .reasoning = reasoning_of(answer),
          .reasoning_open = answer.reasoning_open,
          .tools = recorded_tools(),
          .max_calls = AnswerParser::kMaxCalls,
          .id_seed = 7};
}

inline AnswerPart text_part(std::string text) {
  return {.kind = AnswerPart::Kind::text, .text = std::move(text), .id = {}, .name = {}};
}
inline AnswerPart reasoning_part(std::string text) {
  return {.kind = AnswerPart::Kind::reasoning, .text = std::move(text), .id = {}, .name = {}};
}
inline AnswerPart call_part(std::string name, std::string arguments) {
  return {.kind = AnswerPart::Kind::call,
          .text = std::move(arguments),
          .id = {},
          .name = std::move(name)};
}

// gtest prints them with this.
inline void PrintTo(const AnswerPart& part, std::ostream* out) {
  *out << static_cast<int>(part.kind) << " " << part.name << " [" << part.text << "]";
}
inline void PrintTo(const AnswerEvent& event, std::ostream* out) {
  *out << static_cast<int>(event.kind) << " #" << event.call << " " << event.name << " ["
       << event.text << "]";
}

// Returns the events of a text that arrives in these pieces.
inline std::vector<AnswerEvent> events_of(const AnswerParser::Options& options,
                                          const std::vector<std::string_view>& pieces) {
  AnswerParser parser(options);
  std::vector<AnswerEvent> events;
  for (const std::string_view piece : pieces) parser.push(piece, events);
  parser.finish(events);
  return events;
}

// Joins neighbouring pieces; the result must not depend on where the text was cut.
inline std::vector<AnswerEvent> joined_events(const std::vector<AnswerEvent>& events) {
  std::vector<AnswerEvent> out;
  for (const AnswerEvent& event : events) {
    const bool piece = event.kind == AnswerEvent::Kind::text ||
                       event.kind == AnswerEvent::Kind::reasoning ||
                       event.kind == AnswerEvent::Kind::arguments;
    if (piece && !out.empty() && out.back().kind == event.kind && out.back().call == event.call)
      out.back().text += event.text;
    else
      out.push_back(event);
  }
  return out;
}

inline std::vector<AnswerPart> parts_of(const std::vector<AnswerEvent>& events) {
  AnswerParts parts;
  for (const AnswerEvent& event : events) parts.add(event);
  return parts.parts();
}

}  // namespace hocket
