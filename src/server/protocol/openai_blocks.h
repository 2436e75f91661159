// What the blocks and answers of OpenAI's two older APIs share: openai_response.cc and
// chat_response.cc say the rest.
#pragma once

#include <string>
#include <string_view>

#include "server/protocol/answer.h"

namespace hocket {

// What a block of a stream says of one choice.
struct OpenaiPiece {
  std::string content;  // the member that holds the text: "delta" or "text"
  std::string logprobs = "null";
  std::string ids;        // notes, each with a comma before it
  std::string of_answer;  // the same, beside the choices
};

bool wants_logprobs(const Answer& answer, const ChoiceAnswer& choice);
// The state a stream's block has to tell: how it begins, what is new, how it ends.
enum class StreamPart : uint8_t { none, opening, text, end };
StreamPart next_part(const Answer& answer, const ChoiceAnswer& choice);
// What choice.text has beyond what was sent, as a JSON string; it counts as sent from now on.
std::string new_text(const Answer& answer, ChoiceAnswer& choice);
// ,"token_ids":[...] of those that were not sent, where asked for.
std::string token_ids_note(const Answer& answer, ChoiceAnswer& choice);
// Ids or log-probabilities that were not sent.
bool has_new_tokens(const Answer& answer, const ChoiceAnswer& choice);

// {"id", "object", ..., "choices": []}
Json openai_head(const Answer& answer, std::string_view object);
// With usage and timings.
Json openai_closing(const Answer& answer, Json&& body);
// The whole answer. `choices`: as JSON, joined by commas; `more`: members behind them, each with a
// comma before it.
std::string openai_whole(const Answer& answer, std::string_view object, std::string_view choices,
                         std::string_view more = {});
std::string openai_block(const Answer& answer, const ChoiceAnswer& choice, std::string_view object,
                         const OpenaiPiece& piece);
std::string openai_usage_block(const Answer& answer, std::string_view object);
// "tool_calls" where it stopped after calls, else as finish_reason_json.
Json openai_finish_reason(const ChoiceAnswer& choice);

}  // namespace hocket
