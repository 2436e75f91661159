// The body of POST /scale_ranks. Thread: any.
#pragma once

#include <optional>

#include "core/rank_set.h"
#include "server/http/json_body.h"

namespace hocket {

// Which ranks are to leave, or how many are to stay: exactly one of the two.
struct ScaleRanks {
  RankSet leave;
  std::optional<int> keep;
};
// Errors: invalid_request, naming the field.
Result<ScaleRanks> parse_scale_ranks(const Json& body);

}  // namespace hocket
