// Which trace a request belongs to, and how that is said in headers.
// Source: W3C Trace Context (level 1).   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hocket {

struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;  // not both 0
  uint64_t span = 0;                       // not 0: the one that a new span belongs under
  bool sampled = true;

  bool operator==(const TraceContext&) const = default;
};

// Reads a `traceparent`. Of a version that we do not know, what we know of it. Nothing where it is
// none: then a trace begins anew.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
std::string to_traceparent(const TraceContext& context);

// 32 and 16 hexadecimal digits.
std::string trace_id_text(const TraceContext& context);
std::string span_id_text(uint64_t span);

// A trace of its own; and a new span of the same trace.
TraceContext begin_trace();
TraceContext span_under(const TraceContext& parent);

}  // namespace hocket
