#include "server/apis/sglang/generate_api.h"

#include "server/apis/openai/openai_errors.h"
#include "server/apis/sglang/generate_bodies.h"
#include "server/apis/sglang/generate_request.h"
#include "server/apis/sglang/generate_response.h"

namespace hocket {
namespace {

Result<GenerationRequest> parse(const Json& body, const ServedModel& model, const RequestContext&) {
  return parse_generate(body, model);
}

}  // namespace

constinit const Api kGenerateApi = {.name = "generate",
                                    .path = "/generate",
                                    .id_prefix = "gen-",
                                    .operation = "text_completion",
                                    .fields = {"text", "max_new_tokens", "min_new_tokens"},
                                    .needs_tokenizer = false,
                                    .parse = parse,
                                    .format = generate_format,
                                    .bodies = generate_bodies,
                                    .errors = &kOpenAiErrors};

}  // namespace hocket
