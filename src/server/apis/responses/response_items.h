// Turns items of /v1/responses (an input or output is a list of items) into messages of a chat
// template.
//
//   message                                  -> system, user, assistant
//   reasoning, message, function_call ..     -> one assistant message
//   function_call_output                     -> tool
//
// Thread: any.   Source: OpenAI's API reference.
#pragma once

#include <string>

#include "server/http/json_body.h"

namespace hocket {

inline constexpr size_t kMaxItems = 16384;  // in one input

// Appends the items' messages to `out`. All system messages at the beginning are joined to one,
// since many templates read only the first. `at` names the list in errors. Errors: invalid_request,
// naming the item: "input[2].type".
Result<void> add_items(const Json& items, const std::string& at, Json& out);

// Returns the input as a list of items, and gives an id to each item without one.
Result<Json> items_of_input(const Json& input, std::string_view id_stem);

}  // namespace hocket
