// Bodies of OpenAI's /v1/responses to chat requests. Fields: docs/api.md. Every error is 400 (404
// for a previous answer that is not there) and names the field.   Thread: any.
// Source: OpenAI's API reference.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/generation_request.h"
#include "server/protocol/json_body.h"
#include "server/responses/response_store.h"

namespace hocket {

// What only this API knows of a request; its answer needs it.
struct ResponsesRequest {
  std::string id;        // of the answer
  std::string repeated;  // the answer's members that say what was asked for, as JSON text, each
                         // with a comma before it
  bool store = false;    // the answer is kept
  bool background = false;
  bool goes_on = false;  // from an answer that is kept
  std::string who;
  std::vector<ResponseStore::TextPtr> turns;  // all items before the output
  ResponseStore* responses = nullptr;         // outlives all answers
};

// Who asks, and where answers are kept.
struct ResponsesContext {
  ResponseStore* store = nullptr;
  std::string_view who;
  int rank = -1;              // of several processes: ids tell who keeps the answer
  HeldBytes* held = nullptr;  // counts the trees of earlier turns; null: not counted
};

Result<GenerationRequest> parse_responses(const Json& body, const ServedModel& model,
                                          const ResponsesContext& context);

// "resp_" and 32 digits, between them the rank and "_" where there is one.
std::string new_response_id(int rank);
// -1: the id names none.
int rank_of_response(std::string_view id);
// Errors: not_found.
Result<ResponseStore::RecordPtr> find_response(const ResponsesContext& context,
                                               const std::string& id, std::string_view param);

}  // namespace hocket
