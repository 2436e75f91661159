#include "server/observe/trace_context.h"

#include <fmt/format.h>

#include <charconv>

#include "server/generation/generation_request.h"

namespace hocket {
namespace {

// The form of the header is "00-" trace "-" span "-" flags.
constexpr size_t kLen = 55, kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53;

// Reads lower-case digits only, as the standard says.
std::optional<uint64_t> hex(std::string_view digits) {
  uint64_t number = 0;
  for (const char c : digits)
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return std::nullopt;
  std::from_chars(digits.begin(), digits.end(), number, 16);
  return number;
}

uint64_t new_id() {
  uint64_t id = 0;
  while (id == 0) id = fresh_seed();
  return id;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view h) {
  if (h.size() < kLen || h[2] != '-' || h[kSpanAt - 1] != '-' || h[kFlagsAt - 1] != '-')
    return std::nullopt;
  const auto version = hex(h.substr(0, 2));
  if (!version || *version == 0xff) return std::nullopt;
  if (h.size() > kLen && (*version == 0 || h[kLen] != '-')) return std::nullopt;
  const auto high = hex(h.substr(kTraceAt, 16)), low = hex(h.substr(kTraceAt + 16, 16));
  const auto span = hex(h.substr(kSpanAt, 16)), flags = hex(h.substr(kFlagsAt, 2));
  if (!high || !low || !span || !flags || (*high == 0 && *low == 0) || *span == 0)
    return std::nullopt;
  return TraceContext{*high, *low, *span, (*flags & 1) != 0};
}

std::string trace_id_text(const TraceContext& c) {
  return fmt::format("{:016x}{:016x}", c.trace_high, c.trace_low);
}

std::string span_id_text(uint64_t span) {
  return fmt::format("{:016x}", span);
}

std::string to_traceparent(const TraceContext& c) {
  return fmt::format("00-{}-{}-{:02x}", trace_id_text(c), span_id_text(c.span), c.sampled ? 1 : 0);
}

TraceContext begin_trace() {
  return {new_id(), new_id(), new_id(), true};
}

TraceContext span_under(const TraceContext& parent) {
  TraceContext own = parent;
  own.span = new_id();
  return own;
}

}  // namespace hocket
