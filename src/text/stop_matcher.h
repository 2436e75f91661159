// Finds stop strings in an answer that arrives in pieces, and holds back only what may still
// become one: the longest end of the text that begins a stop string.
// The first stop string that is complete wins; of those complete at the same character, the
// longest. So the result does not depend on where the pieces were cut.
// Owner: one running answer. Thread: one at a time. Memory: one stop string of held text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

enum class StopText : uint8_t { trim, keep };  // is the stop string part of the answer?

class StopMatcher {
 public:
  // An empty stop string is a bug of the caller.
  StopMatcher(std::vector<std::string> stops, StopText stop_text);

  struct Piece {
    std::string_view text;             // safe to send; valid until the next call
    std::optional<std::string> match;  // the stop string found; `text` was the last
  };
  // Text after a match is ignored.
  Piece push(std::string_view text);
  // What was held back when the answer ended without a match.
  std::string_view flush();

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;  // border[n]: longest proper border of the first n bytes
    uint32_t matched = 0;          // longest prefix that the text ends with
  };
  static void advance(Stop& stop, char c);

  std::vector<Stop> stops_;  // longest first
  StopText stop_text_;
  bool done_ = false;
  std::string held_;
  std::string out_;
};

}  // namespace hocket
