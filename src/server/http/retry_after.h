// The remedy of errors whose answer has the header Retry-After and that have no better remedy.
#pragma once

namespace hocket {

inline constexpr const char* kRetryAfterFix = "try again after the time in Retry-After";

}  // namespace hocket
