// Records of streams for tests only.
#pragma once

#include <string>
#include <vector>

#include "server/reply/stream_records.h"

namespace hocket {

using Tokens = std::vector<std::vector<TokenId>>;

inline RecordedRequest request(const std::string& id, const std::string& who = "ann",
                               size_t body = 100, size_t num_choices = 1) {
  return {.identity = {.id = id, .created = 7, .call_seed = 9},
          .who = who,
          .path = "/v1/completions",
          .body = std::string(body, 'x'),
          .tokens = Tokens(num_choices)};
}

}  // namespace hocket
