// Error codes that only the server makes, so that other rooms need not know them. Their numbers
// follow those of requests in base/result.h. error_map.cc maps all codes and does not compile if
// two of them have the same number.
#pragma once

#include "base/result.h"

namespace hocket {

inline constexpr ErrorCode kForbidden{115};
inline constexpr ErrorCode kRateLimited{116};
inline constexpr ErrorCode kTakenOver{117};

}  // namespace hocket
