// The record of a stream: all that another rank needs to make the same bytes.   Thread: values;
// any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "server/generation/prepared_request.h"
#include "server/http/http.h"
#include "server/http/json_body.h"

namespace hocket {

inline constexpr size_t kMaxRecordedChoices = 16;  // a stream of more choices is not kept

struct RecordedRequest {
  AnswerIdentity identity;
  std::string who;  // name of the principal
  std::string path, body, routing_key;
  uint64_t client = 0;                       // its number (client_key.h)
  bool event_ids = false;                    // true: each event carries an id
  uint32_t num_takeovers = 0;                // how often another rank continued the stream
  std::vector<std::vector<TokenId>> tokens;  // by choice

  size_t num_tokens() const;
  size_t num_bytes() const;  // bytes of its texts and tokens
};

// Returns the record of a request without tokens; nullopt: it streams nothing, or too many choices.
std::optional<RecordedRequest> recorded_request(const HttpRequest& request,
                                                const PreparedRequest& prepared);

std::string to_text(const RecordedRequest& request);
// Returns the most bytes that to_text() makes of a record whose num_bytes() are `record_bytes`.
size_t max_text_bytes(size_t record_bytes);
// Reads what to_text() wrote, for the principal `who`. Errors: invalid_request.
Result<RecordedRequest> read_recorded_request(const Json& json, std::string_view who);

}  // namespace hocket
