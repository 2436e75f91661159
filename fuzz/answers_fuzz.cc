// Fuzzes the parser of answers in every tool format. The result does not depend on where the text
// is cut into pieces, the arguments of each call are one JSON object, and without tool format and
// reasoning the text is unchanged.
//
// The first byte chooses the tool format and reasoning, the second the length of a piece.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/answers/answer_parser.h"

using namespace hocket;

namespace {

constexpr int kNumFormats = static_cast<int>(ToolFormat::json) + 1;

std::shared_ptr<const std::vector<Tool>> tools() {
  static const auto some = std::make_shared<const std::vector<Tool>>(std::vector<Tool>{
      {.name = "f",
       .description = "",
       .parameters = R"({"type":"object","properties":{"a":{"type":"integer"},
           "b":{"type":"string"},"c":{"type":"array"},"d":{"type":["number","null"]}}})",
       .strict = false},
      {.name = "get_weather", .description = "", .parameters = "", .strict = false}});
  return some;
}

bool is_ascii(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return c >= 128; });
}

// Shortens numbers, which nlohmann refuses beyond the range of double though they are JSON. No
// digit of an escape in a string is lost.
std::string with_small_numbers(std::string_view json) {
  constexpr int kMaxDigits = 16, kMaxExponent = 2;
  std::string out;
  int num_digits = 0, most = kMaxDigits;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c >= '0' && c <= '9') {
      if (++num_digits > most) continue;
    } else {
      const bool signs = (c == '+' || c == '-') && most == kMaxExponent && num_digits == 0;
      const bool after_number = i > 0 && (json[i - 1] == '.' || num_digits > 0);
      if (!signs) most = (c == 'e' || c == 'E') && after_number ? kMaxExponent : kMaxDigits;
      num_digits = 0;
    }
    out += c;
  }
  return out;
}

std::vector<AnswerPart> parts_of(const AnswerParser::Options& options, std::string_view text,
                                 size_t piece) {
  AnswerParser parser(options);
  std::vector<AnswerEvent> events;
  for (size_t at = 0; at < text.size(); at += piece) parser.push(text.substr(at, piece), events);
  parser.finish(events);
  HOCKET_CHECK(parser.warnings().size() <= AnswerParser::kMaxWarnings);
  AnswerParts parts;
  int next = 0;
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::call) HOCKET_CHECK(event.call == next++);
    parts.add(event);
  }
  HOCKET_CHECK(parts.num_calls() <= options.max_calls);
  return parts.parts();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  AnswerParser::Options options;
  options.tools_as = static_cast<ToolFormat>(data[0] % kNumFormats);
  const char* reasoning = options.tools_as == ToolFormat::gpt_oss  ? "gpt-oss"
                          : options.tools_as == ToolFormat::gemma4 ? "gemma4"
                                                                   : "think";
  if (data[0] / kNumFormats % 2 == 1)
    options.reasoning = choose_reasoning_format(reasoning, "").value();
  options.reasoning_open = options.reasoning && data[0] / kNumFormats / 2 % 2 == 1;
  options.max_calls = data[0] >= 200 ? 1 : AnswerParser::kMaxCalls;
  options.tools = tools();

  const auto whole = parts_of(options, text, text.size() + 1);
  HOCKET_CHECK((parts_of(options, text, data[1] % 16 + 1) == whole));
  std::string prose;
  for (const AnswerPart& part : whole) {
    if (part.kind == AnswerPart::Kind::text) prose += part.text;
    // Only ASCII is checked: JSON cannot hold invalid UTF-8, which no detokenizer produces.
    if (part.kind != AnswerPart::Kind::call || !is_ascii(text)) continue;
    const auto arguments = nlohmann::json::parse(with_small_numbers(part.text), nullptr, false);
    HOCKET_CHECK(arguments.is_object());
  }
  if (options.tools_as == ToolFormat::none && !options.reasoning) HOCKET_CHECK(prose == text);
  return 0;
}
