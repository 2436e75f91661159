// Log lines of requests: one when the prompts are tokenized, one when the request ends.
//
//   request_began id=chatcmpl-... path=/v1/chat/completions who=anonymous stream=true prompts=1
//     prompt_tokens=18 temperature=0.7 top_p=1 ... max_tokens=64
//   request_ended id=chatcmpl-... path=... status=200 finish=stop prompt_tokens=18
//     cached_tokens=0 completion_tokens=3 text_ms=0.2 queue_ms=0.1 prefill_ms=4 decode_ms=2.1 ...
//
// With --log-requests-level 2 or 3 there is also one line request_prompt per prompt and one line
// request_answer per choice: id, index, bytes, text.
// Thread: the observer's.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "server/observe/request_record.h"

namespace hocket {

// The contents of the lines; each level adds to the one before: lengths and times; sampling
// parameters; the first bytes of prompts and answers; their whole texts.
enum class RequestLogLevel : uint8_t { lengths = 0, sampling = 1, beginnings = 2, texts = 3 };
inline constexpr size_t kBeginningBytes = 2048;

// Errors: bad_value.
Result<RequestLogLevel> parse_request_log_level(int level);

void log_began(const RequestRecord& record, RequestLogLevel level);
void log_ended(const RequestRecord& record, RequestLogLevel level);

}  // namespace hocket
