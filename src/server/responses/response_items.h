// Items of /v1/responses, which inputs and outputs are lists of, as messages of a chat template.
//
//   message                                  -> system, user, assistant
//   reasoning, message, function_call ..     -> one assistant message
//   function_call_output                     -> tool
//
// Thread: any.   Source: OpenAI's API reference.
#pragma once

#include <string>

#include "server/protocol/json_body.h"

namespace hocket {

inline constexpr size_t kItemsMax = 16384;  // of an input

// Appends to the list `out`. What the system says first of all is one message, since many templates
// read only that one. `at` names the list in errors.
// Errors: invalid_request, naming the item: "input[2].type".
Result<void> add_items(const Json& items, const std::string& at, Json& out);

// The list that an input stands for, with an id for each item that has none.
Result<Json> items_of_input(const Json& input, std::string_view id_stem);

}  // namespace hocket
