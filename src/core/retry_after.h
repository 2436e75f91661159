// The sentence of every error whose answer has the header Retry-After (server/http/error_map.h).
#pragma once

namespace hocket {

inline constexpr const char* kRetryAfterFix = "try again after the time in Retry-After";

}  // namespace hocket
