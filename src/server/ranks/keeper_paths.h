// The paths by which ranks send each other the records of their streams (stream_keeper.h); clients
// get 404 there.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

namespace hocket {

// POST with the body of a stream's request, and the headers below: keep it.
inline constexpr std::string_view kKeepPath = "/ranks/streams/keep";
// POST with lines of StreamChanges::Changes. Answer: {"unknown": [ids of streams to send again]}.
inline constexpr std::string_view kChangesPath = "/ranks/streams/changes";
// POST with {"id", "numbers"}: give me the record of this stream, and end the stream if you write
// it. numbers: how many event numbers the client named. If that does not fit the stream's choices,
// the stream is not ended.
inline constexpr std::string_view kTakePath = "/ranks/streams/take";

inline constexpr const char* kKeptPathHeader = "X-Hocket-Kept-Path";  // the path that was asked
// The rank that sends a request, as to_via() has it.
inline constexpr const char* kViaHeader = "X-Hocket-Via";
inline constexpr const char* kChoicesHeader = "X-Hocket-Choices";  // number of choices
// How many times a rank has taken the stream over; a copy with a smaller number is refused.
inline constexpr const char* kTakeoversHeader = "X-Hocket-Takeovers";

// Returns "rank 2".
inline std::string to_via(int rank) {
  return fmt::format("rank {}", rank);
}
// Returns the rank that kViaHeader names; -1: none.
inline int rank_in_via(std::string_view via) {
  constexpr std::string_view kBefore = "rank ";
  if (!via.starts_with(kBefore)) return -1;
  via.remove_prefix(kBefore.size());
  int rank = -1;
  const auto [end, failed] = std::from_chars(via.data(), via.data() + via.size(), rank);
  return failed == std::errc{} && end == via.data() + via.size() ? rank : -1;
}

}  // namespace hocket
