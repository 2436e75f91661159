// The record of one API: everything that the server's other files must know of it. Each API has
// one, in its folder of server/apis, and apis.h lists them. A new API is a folder and a line there.
#pragma once

#include <string_view>

#include "server/generation/answer.h"
#include "server/http/http.h"

namespace hocket {

class ResponseStore;

// The facts of one HTTP request that parsers read besides its body.
struct RequestContext {
  ResponseStore* store = nullptr;  // the answers that are kept; null: an API that keeps none
  std::string_view who;            // the principal's name
  int rank = -1;  // this rank; ids name the rank that keeps the answer; -1: one process
  std::string_view answer_id;  // the id, if the answer has one already; empty: it is drawn
  HeldBytes* held = nullptr;   // counts the trees of earlier turns; null: not counted
};

// The names of an API's fields for the prompt, the longest answer and the shortest answer.
struct PromptFields {
  const char *prompt, *max_tokens, *min_tokens;
};

struct Api {
  std::string_view name;       // "chat"; the page shows it
  std::string_view path;       // a POST to it asks for an answer; errors below it have its format
  std::string_view id_prefix;  // begins the ids of answers: "chatcmpl-"
  PromptFields fields;
  bool needs_tokenizer = true;  // false: prompts may be token ids alone
  int num_copies = 1;           // copies of the body's tree that parse() makes, and the tree
  // Errors: invalid_request and others, naming the field.
  Result<GenerationRequest> (*parse)(const Json& body, const ServedModel& model,
                                     const RequestContext& context);
  const ApiFormat& (*format)();
  const ErrorFormat* errors;
  // Returns an answer's id with another rank in it; null: ids name no rank.
  std::string (*id_at)(std::string_view id, int rank) = nullptr;
};

}  // namespace hocket
