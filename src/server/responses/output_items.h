// The items of an answer of /v1/responses, one a part: message, reasoning, function_call.
#pragma once

#include <string>

#include "server/protocol/part_teller.h"

namespace hocket {

// Names of items come from the answer's: the same whenever they are told.
std::string item_id(const Answer& answer, const AnswerEvent& first, int index);
// An item at its beginning: without text.
Json empty_item(const Answer& answer, const AnswerEvent& first, int index);
// An item as it is at its end.
Json whole_item(const Answer& answer, const AnswerEvent& first, int index, std::string_view text,
                PartEnd how);
// The part of a message or a thought that holds its text; null for a call.
Json content_part(const AnswerEvent& first, std::string_view text);

// All items of the answer as far as it has come.
Json output_items(const Answer& answer);

}  // namespace hocket
