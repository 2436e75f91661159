// APIs that say a conversation in words of their own: their bodies become bodies of
// /v1/chat/completions, so that each field is read and checked in one place.   Thread: any.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "server/protocol/generation_request.h"
#include "server/protocol/json_body.h"

namespace hocket {

// Copies fields that such an API takes besides its own, under their names in the chat API: those of
// docs/api.md "How tokens are chosen" and of the envelope.
void pass_extensions(Fields& fields, Json& chat);

// What the fields of the chat body are called in the body that the client sent, each applied to
// what the ones before it left. A name stands for the fields below it too, "messages" for
// "messages[3].content"; one with a dot before it is a step of a path, wherever it stands.
using FieldNames = std::vector<std::pair<std::string_view, std::string_view>>;

// The chat request, with errors in the client's words.
Result<GenerationRequest> parse_translated(const Json& chat, const ServedModel& model,
                                           const FieldNames& names);
Error in_clients_words(Error e, const FieldNames& names);

}  // namespace hocket
