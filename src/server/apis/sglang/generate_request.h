// Parses bodies of SGLang's /generate, and of /tokenize and /detokenize, into checked requests.
// Every error is 400 and names the field.   Thread: any.   Source: SGLang's native API.
#pragma once

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

Result<GenerationRequest> parse_generate(const Json& body, const ServedModel& model);

struct TokenizeRequest {
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};
Result<TokenizeRequest> parse_tokenize(const Json& body, const ServedModel& model);

struct DetokenizeRequest {
  std::vector<TokenId> tokens;
  SpecialTokens special = SpecialTokens::keep;
};
Result<DetokenizeRequest> parse_detokenize(const Json& body, const ServedModel& model);

struct AbortBody {
  std::string rid;  // empty if `all` is set
  bool all = false;
};
Result<AbortBody> parse_abort(const Json& body);

}  // namespace hocket
