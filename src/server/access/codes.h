// Codes of errors that only whoever guards the door makes, so that no other room need know them.
// They count on where those of requests in base/result.h end; error_map.cc, which maps all of them,
// does not compile where a number has two meanings.
#pragma once

#include "base/result.h"

namespace hocket {

inline constexpr ErrorCode kForbidden{115};
inline constexpr ErrorCode kRateLimited{116};

}  // namespace hocket
