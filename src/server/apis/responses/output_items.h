// Writes the items of an answer of /v1/responses, one per part: message, reasoning, function_call.
#pragma once

#include <string>

#include "server/generation/part_emitter.h"

namespace hocket {

// Returns the item's id. It is made from the answer's id and the index, so it is always the same.
std::string item_id(const Answer& answer, const AnswerEvent& first, int index);
// Returns an item as it is at its beginning, without text.
Json empty_item(const Answer& answer, const AnswerEvent& first, int index);
// Returns an item as it is at its end.
Json whole_item(const Answer& answer, const AnswerEvent& first, int index, std::string_view text,
                PartEnd how);
// Returns the content part that holds the text of a message or a piece of reasoning; null for a
// call.
Json content_part(const AnswerEvent& first, std::string_view text);

// Returns all items of the answer so far.
Json output_items(const Answer& answer);

}  // namespace hocket
