// A request that is ready for the engine: its prompts are tokenized and fit the context.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/generation/generation_request.h"
#include "server/usage/request_memory.h"

namespace hocket {

// The parts of an answer that are drawn: two ranks that have the same ones make the same answer of
// the same request.
struct AnswerIdentity {
  std::string id;  // "chatcmpl-..."
  int64_t created = 0;
  uint64_t call_seed = 0;  // ids of calls are computed from it, and seeds that no client set
};

// The header in which a rank that forwards a request sends the identity of the answer. The other
// rank sends its progress then (reply/answer_progress.h).
inline constexpr const char* kAnswerHeader = "X-Hocket-Answer";
std::string to_header(const AnswerIdentity& identity);
// The header with which a client asks for events with ids (PreparedRequest::event_ids).
inline constexpr const char* kEventIdsHeader = "X-Hocket-Event-Ids";
// Returns nullopt for a text that to_header() did not make.
std::optional<AnswerIdentity> read_identity(std::string_view text);

// The record of a stream. The room that keeps such records derives its own from this.
struct StreamHandle {};

// From its caller it gets `received` and the parts of `request` that the connection knows; after
// that it never changes.
struct PreparedRequest {
  std::string id;  // this and the next two: AnswerIdentity
  int64_t created = 0;
  uint64_t call_seed = 0;
  // True if the stream has lines of progress, for the rank that passes it on.
  bool sends_progress = false;
  ServedModel model;
  GenerationRequest request;
  std::vector<std::vector<TokenId>> prompts;               // token ids, by index of request.prompts
  std::shared_ptr<const std::vector<TokenId>> prediction;  // RequestInput's
  HeldBytes held;                   // bytes of the prompts and of the engine's copies
  std::vector<std::string> echoes;  // text of prompts that were given as ids, if `echo` is set
  TimePoint received{};
  // The record with which another rank, or a client that connects again, continues the stream;
  // null: none is kept.
  std::shared_ptr<StreamHandle> stream_record;
  bool event_ids = false;  // true: each event of the stream carries an id
};

// Tokenizes and fits a parsed request. The bytes that it and the engine's copies hold are counted
// in `memory` (null: not counted) until the result is destroyed. given: the answer's identity;
// nullopt: it is drawn here.   Thread: any. Errors: those of prompt_ids, fit_to_context and
// RequestMemory::take.
Result<PreparedRequest> prepare_request(GenerationRequest request, const ServedModel& model,
                                        std::shared_ptr<RequestMemory> memory = nullptr,
                                        std::optional<AnswerIdentity> given = std::nullopt);

AnswerIdentity identity_of(const PreparedRequest& prepared);

// Returns the prompt as text, for `echo`.
std::string prompt_text(const PreparedRequest& prepared, int prompt);

}  // namespace hocket
