// Parses bodies of OpenAI's /v1/responses into requests. docs/api.md lists the fields. Every error
// is 400 (404 if a previous answer is not there) and names the field.   Thread: any.
// Source: OpenAI's API reference.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/apis/responses/response_store.h"
#include "server/generation/api.h"
#include "server/http/json_body.h"

namespace hocket {

// Fields of a request that only this API has; its answer needs them.
struct ResponsesRequest : ApiFields {
  std::string id;        // id of the answer
  std::string repeated;  // members of the answer that repeat the request, as JSON text with a comma
                         // before each
  bool store = false;    // true: the answer is kept
  bool background = false;
  bool continues = false;  // true: continues from an answer that is kept
  std::string who;
  std::vector<ResponseStore::TextPtr> turns;  // all items before the output, one list per turn
  ResponseStore* responses = nullptr;         // must outlive all answers
};

// Precondition of both functions with a context: its store is not null.
Result<GenerationRequest> parse_responses(const Json& body, const ServedModel& model,
                                          const RequestContext& context);

// Returns "resp_" and 32 digits; between them the rank and "_" unless rank is -1.
std::string new_response_id(int rank);
// Returns the id with another rank in it.
std::string response_id_at(std::string_view id, int rank);
// Returns the rank in the id; -1 if there is none.
int rank_of_response(std::string_view id);
// Errors: not_found.
Result<ResponseStore::RecordPtr> find_response(const RequestContext& context, const std::string& id,
                                               std::string_view param);

}  // namespace hocket
