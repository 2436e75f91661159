// What is known of a request when it begins, and when it has ended: for the log, the dump and
// traces. A value; times are of the steady clock, to_unix turns them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/sampling_params.h"
#include "policy/scheduler/request.h"
#include "server/observe/byte_budget.h"
#include "server/observe/trace_context.h"

namespace hocket {

// Tokens of a prompt under a name that equal tokens with equal ones before them share.
struct TokenBlock {
  uint64_t id = 0;
  int len = 0;
};

struct PromptRecord {
  int num_tokens = 0, n = 1;
  std::string rid;
  SamplingParams sampling;         // its numbers: lists and grammars are left out
  int num_stops = 0;               // texts and tokens
  bool seeded = false;             // by the client
  std::string text;                // only where the log tells prompts
  std::vector<TokenBlock> blocks;  // only where requests are dumped
};

struct ChoiceRecord {
  int prompt = 0, rank = 0;
  int cached_tokens = 0, generated_tokens = 0, num_retractions = 0;
  FinishReason finish = FinishReason::none;
  RequestTimes times;
  uint64_t ids_hash = 0;  // of the generated ids, the end token too
  std::string text;       // only where the log tells answers
};

struct RequestRecord {
  std::string path, id, who, model;
  bool stream = false;
  Duration to_unix{};  // from steady to since 1970
  TimePoint received{}, tokenized{}, first_token{}, ended{};
  std::vector<PromptRecord> prompts;
  std::vector<ChoiceRecord> choices;  // once it has ended
  int status = 0;                     // as the client saw it; 499: it had left; 0: not ended yet
  std::string error_code, error_param;
  std::string error;                  // in words, where they cannot quote the request
  std::string handed_on_to;           // the rank that answers in place of this one
  std::string body;                   // only where requests are dumped
  std::optional<TraceContext> trace;  // only where spans are sent: the request's own span
  uint64_t parent_span = 0;           // 0: it began the trace
  ByteBudget::Share share;            // of what may be kept: body and texts

  int64_t unix_ns(TimePoint t) const { return (t.time_since_epoch() + to_unix).count(); }
  int64_t num_prompt_tokens() const {
    int64_t sum = 0;
    for (const PromptRecord& prompt : prompts) sum += prompt.num_tokens;
    return sum;
  }
};

// Equal for equal ids in the same order: by it a replay knows that it got the same answer.
uint64_t hash_of_ids(std::span<const TokenId> ids);

}  // namespace hocket
