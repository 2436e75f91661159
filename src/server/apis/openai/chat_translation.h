// Helpers for APIs whose bodies have other field names: their bodies are translated to bodies of
// /v1/chat/completions, so that each field is read and checked in one place.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

// Copies the fields that such an API accepts under the names of the chat API: those of docs/api.md
// "How tokens are chosen", and those of the envelope.
void pass_extensions(Fields& fields, Json& chat);

// Pairs (name in the chat body, name in the client's body). Each pair is applied to the result of
// the ones before it. A name covers the fields below it too: "messages" covers
// "messages[3].content". A name that begins with a dot is one step of a path and is replaced
// wherever it is.
using FieldNames = std::vector<std::pair<std::string_view, std::string_view>>;

// Parses the chat body; errors use the client's field names.
Result<GenerationRequest> parse_translated(const Json& chat, const ServedModel& model,
                                           const FieldNames& names);
Error with_client_field_names(Error e, const FieldNames& names);

// Returns invalid_request for a part of the client's body: "messages[2].content is missing".
std::unexpected<Error> wrong_part(const std::string& where, std::string_view what);
// Returns the string `name` of the object that `at` names in errors. Errors: as wrong_part().
Result<std::string> string_member(const Json& object, const char* name, const std::string& at);

}  // namespace hocket
