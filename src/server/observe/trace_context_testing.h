// Names that several tests of traces share.
#pragma once

namespace hocket {

// A traceparent header: trace 4bf92f35... with span 00f067aa..., sampled.
inline constexpr const char* kSampledTraceparent =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

}  // namespace hocket
