// The record of a request for the log, the dump and traces: as known when it begins, and when it
// has ended. A value type; times are of the steady clock, and to_unix converts them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/sampling_params.h"
#include "policy/scheduler/request.h"
#include "server/observe/byte_budget.h"
#include "server/observe/trace_context.h"

namespace hocket {

// A piece of a prompt. Its id stands for its tokens and all tokens before it, so prompts with the
// same beginning share the ids of their first blocks.
struct TokenBlock {
  uint64_t id = 0;
  int len = 0;
};

struct PromptRecord {
  int num_tokens = 0, n = 1;
  std::string rid;
  SamplingParams sampling;         // numbers only, without lists and grammars
  int num_stops = 0;               // stop strings and stop token ids
  bool seeded = false;             // true: the client gave the seed
  std::string text;                // set only if the log has prompts
  std::vector<TokenBlock> blocks;  // set only if requests are dumped
};

struct ChoiceRecord {
  int prompt = 0, rank = 0;
  int cached_tokens = 0, recomputed_tokens = 0, generated_tokens = 0, num_retractions = 0;
  DraftCounts drafts;
  FinishReason finish = FinishReason::none;
  RequestTimes times;
  uint64_t ids_hash = 0;  // hash of the generated ids with the end token
  std::string text;       // set only if the log has answers
};

struct RequestRecord {
  std::string path, id, who, model;
  std::string_view operation;  // Api::operation; empty: no API is asked
  bool stream = false;
  Duration to_unix{};  // add it to a steady time: time since 1970
  TimePoint received{}, tokenized{}, first_token{}, ended{};
  std::vector<PromptRecord> prompts;
  std::vector<ChoiceRecord> choices;  // set when the request has ended
  int status = 0;  // HTTP status that the client got; 499: it had left; 0: not ended
  std::string error_code, error_param;
  std::string error;                  // in words, if they cannot quote the request
  std::string forwarded_to;           // name of the rank that answers instead of this one
  std::string body;                   // set only if requests are dumped
  std::optional<TraceContext> trace;  // set only if spans are sent: the request's own span
  uint64_t parent_span = 0;           // 0: the request began the trace
  ByteBudget::Share share;            // bytes of body and texts in the inbox's budget

  int64_t unix_ns(TimePoint t) const { return (t.time_since_epoch() + to_unix).count(); }
  int64_t num_prompt_tokens() const {
    int64_t sum = 0;
    for (const PromptRecord& prompt : prompts) sum += prompt.num_tokens;
    return sum;
  }
};

// Returns the same hash for equal ids in the same order; a replay compares it to see whether it got
// the same answer.
uint64_t hash_of_ids(std::span<const TokenId> ids);

}  // namespace hocket
