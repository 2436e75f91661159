// The trace that a request belongs to, and its form in HTTP headers.
// Source: W3C Trace Context (level 1).   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hocket {

struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;  // not both 0
  uint64_t span = 0;                       // not 0; a child span has this one as its parent
  bool sampled = true;

  bool operator==(const TraceContext&) const = default;
};

// Reads a `traceparent`. From a later version only the fields of version 00 are read. Returns
// nullopt if the header is not valid: then a trace begins with this request.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// Returns text like "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
std::string to_traceparent(const TraceContext& context);

// Returns 32 hexadecimal digits, and 16 for a span.
std::string trace_id_text(const TraceContext& context);
std::string span_id_text(uint64_t span);

// begin_trace() makes the ids of another trace; span_under() those of a child span in the same
// trace.
TraceContext begin_trace();
TraceContext span_under(const TraceContext& parent);

}  // namespace hocket
