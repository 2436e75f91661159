#include "server/reply/recorded_request.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "server/reply/stream_position.h"

namespace hocket {
namespace {

// The most choices, whose bytes all take the most digits and escapes.
RecordedRequest largest_record(size_t body_bytes, size_t tokens_each) {
  RecordedRequest record{.identity = {.id = std::string(kMaxAnswerId, '\x01'),
                                      .created = INT64_MIN,
                                      .call_seed = UINT64_MAX},
                         .path = std::string(64, '\x01'),
                         .body = std::string(body_bytes, '\x01'),
                         .routing_key = std::string(200, '\x01'),
                         .client = UINT64_MAX,
                         .num_takeovers = UINT32_MAX};
  record.tokens.assign(kMaxRecordedChoices, std::vector<TokenId>(tokens_each, TokenId{INT32_MAX}));
  return record;
}

TEST(RecordedRequest, HasNoLongerTextThanARankTakes) {
  for (const size_t body_bytes : {0, 1, 100'000})
    for (const size_t tokens_each : {0, 1, 10'000}) {
      const RecordedRequest record = largest_record(body_bytes, tokens_each);
      EXPECT_LE(to_text(record).size(), max_text_bytes(record.num_bytes()))
          << body_bytes << ", " << tokens_each;
    }
}

}  // namespace
}  // namespace hocket
