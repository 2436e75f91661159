// Turns Anthropic's messages, lists of content blocks, into messages of a chat template.
// Thread: any.
//
//   user       text, tool_result             -> user "...", tool "..."   in their order
//   assistant  thinking, text, tool_use      -> assistant: reasoning_content, content, tool_calls
#pragma once

#include "server/http/json_body.h"

namespace hocket {

// Appends `system` (a text or a list of text blocks) and `messages` to the list `out`.
// Errors: invalid_request, naming the block: "messages[2].content[0].type".
Result<void> add_chat_messages(const Json* system, const Json& messages, Json& out);

}  // namespace hocket
