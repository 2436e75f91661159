// The format of errors of OpenAI's APIs, which all paths have whose API has no other:
//
//   {"error": {"message", "type", "param", "code", "hint", "doc"}}: OpenAI's fields, plus hint and
//   doc; in a stream a block with it, then [DONE]
//
// Thread: any.
#pragma once

#include <string_view>

#include "base/result.h"
#include "server/http/http.h"
#include "server/http/json_body.h"

namespace hocket {

extern const ErrorFormat kOpenAiErrors;

// Returns {"message", "type", "param", "code", "hint", "doc"} for an API's own format. Bytes of the
// message that are not UTF-8 are replaced when it is written.
Json error_json(const Error& error, std::string_view type);

}  // namespace hocket
