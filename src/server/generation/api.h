// The record of one API: everything that the server's other files must know of it. Each API has
// one, in its folder of server/apis, and apis.h lists them. A new API is a folder and a line there.
#pragma once

#include <span>
#include <string_view>
#include <tuple>

#include "server/generation/answer.h"
#include "server/http/http.h"

namespace hocket {

// The answers that an API keeps for later requests. Its folder derives the store from this.
struct AnswerStore {};

// The facts of one HTTP request that parsers read besides its body.
struct RequestContext {
  AnswerStore* store = nullptr;  // that of the one API with `keeps_answers`; others ignore it
  std::string_view who;          // the principal's name
  int rank = -1;  // this rank; ids name the rank that keeps the answer; -1: one process
  std::string_view answer_id;  // the id, if the answer has one already; empty: it is drawn
  HeldBytes* held = nullptr;   // counts the trees of earlier turns; null: not counted
};

// The names of an API's fields for the prompt, the longest answer and the shortest answer.
struct PromptFields {
  const char *prompt, *max_tokens, *min_tokens;
};

// A path that takes a body of an API.
struct ApiBody {
  std::string_view path;
  // Examples of bodies, and the parser of bodies. accepted_fields.h runs it over the examples and
  // so finds the fields that the path accepts.
  std::span<const char* const> examples;
  void (*parse)(const Json& body, const ServedModel& model);
  // Answers a POST on a thread `text`, without the engine. Null: an endpoint of the server does.
  // `held` counts the answer's memory.
  Result<Json> (*answer)(const Json& body, const ServedModel& model, HeldBytes& held) = nullptr;
};

// Runs a parser only for the fields that it reads: it continues after an error.
template <auto parse>
void read_body(const Json& body, const ServedModel& model) {
  std::ignore = parse(body, model);
}

struct Api {
  std::string_view name;       // "chat"; the page shows it
  std::string_view path;       // a POST to it asks for an answer; errors below it have its format
  std::string_view id_prefix;  // begins the ids of answers: "chatcmpl-"
  std::string_view operation;  // its name in OpenTelemetry's conventions: "chat"
  PromptFields fields;
  bool needs_tokenizer = true;  // false: prompts may be token ids alone
  int num_copies = 1;           // copies of the body's tree that parse() makes, and the tree
  // Errors: invalid_request and others, naming the field.
  Result<GenerationRequest> (*parse)(const Json& body, const ServedModel& model,
                                     const RequestContext& context);
  const ApiFormat& (*format)();
  std::span<const ApiBody> (*bodies)();  // those of all its paths, `path` first
  const ErrorFormat* errors;
  // Returns an answer's id with another rank in it; null: ids name no rank.
  std::string (*id_at)(std::string_view id, int rank) = nullptr;
  // True: answers are kept and found again below `path`, where a GET of PATH/ID?stream=true asks
  // for the rest of a stream. An endpoint of its own has these paths, and `path`.
  bool keeps_answers = false;
  bool repeats_answer = false;  // true: a stream ends with the whole answer
};

}  // namespace hocket
