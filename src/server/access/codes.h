// Codes of errors that only this folder makes; numbers as in base/result.h.
#pragma once

#include "base/result.h"

namespace hocket {

inline constexpr ErrorCode kForbidden{115};
inline constexpr ErrorCode kRateLimited{116};

}  // namespace hocket
