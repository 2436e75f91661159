// The paths by which ranks tell each other of their streams (keeper.cc); clients get 404 there.
#pragma once

#include <string_view>

namespace hocket {

// POST with the body of a stream's request, and the headers below: keep it.
inline constexpr std::string_view kKeepPath = "/ranks/streams/keep";
// POST with lines of StreamRecords::Changes.
inline constexpr std::string_view kChangesPath = "/ranks/streams/changes";
// POST with {"id"}: give me the record of this stream, and end the stream if you write it.
inline constexpr std::string_view kTakePath = "/ranks/streams/take";

inline constexpr const char* kKeptPathHeader = "X-Hocket-Kept-Path";  // the path that was asked
inline constexpr const char* kChoicesHeader = "X-Hocket-Choices";     // number of choices

}  // namespace hocket
