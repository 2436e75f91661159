// Code that the answers and stream blocks of OpenAI's chat and completions APIs share;
// openai_response.cc and chat_response.cc have the rest.
#pragma once

#include <string>
#include <string_view>

#include "server/generation/answer.h"

namespace hocket {

// The fields of one choice in one block of a stream.
struct OpenaiPiece {
  std::string content;  // the member with the text: "delta" or "text"
  std::string logprobs = "null";
  std::string ids;        // members with a comma before each
  std::string of_answer;  // likewise, but beside the choices
};

bool wants_logprobs(const Answer& answer, const ChoiceAnswer& choice);
// The kind of a stream's next block: the opening, more text, or the end of the choice.
enum class BlockKind : uint8_t { none, opening, text, end };
BlockKind next_block_kind(const Answer& answer, const ChoiceAnswer& choice,
                          const StreamCursor& sent);
// Returns the part of choice.text that was not sent, as a JSON string, and marks it as sent.
std::string new_text(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent);
// Returns ,"token_ids":[...] with the ids that were not sent; empty unless asked for.
std::string token_ids_note(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent);
// True if there are ids or log-probabilities that were not sent.
bool has_new_tokens(const Answer& answer, const ChoiceAnswer& choice, const StreamCursor& sent);

// Returns {"id", "object", ..., "choices": []}.
Json openai_head(const Answer& answer, std::string_view object);
// Adds usage and timings to the body.
Json openai_closing(const Answer& answer, Json&& body);
// Returns the whole answer. `choices`: JSON texts joined by commas; `more`: members after them,
// with a comma before each.
std::string openai_whole(const Answer& answer, std::string_view object, std::string_view choices,
                         std::string_view more = {});
std::string openai_block(const Answer& answer, const ChoiceAnswer& choice, WrittenChoices written,
                         std::string_view object, const OpenaiPiece& piece);
std::string openai_usage_block(const Answer& answer, std::string_view object);
// Returns "tool_calls" if it stopped after tool calls, else as finish_reason_json.
Json openai_finish_reason(const ChoiceAnswer& choice);

}  // namespace hocket
