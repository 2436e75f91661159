// Finds stop strings in an answer that arrives in pieces. It holds back only the longest end of the
// text that may still become a stop string. The stop string that is complete first wins; of those
// complete at the same character, the longest. So the result does not depend on how the text was
// cut. Owner: one running answer. Thread: one at a time. Memory: one stop string of held text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

enum class StopText : uint8_t { trim, keep };  // trim: the stop string is not part of the answer

class StopMatcher {
 public:
  // Stop strings must not be empty (a bug).
  StopMatcher(std::vector<std::string> stops, StopText stop_text);

  struct Piece {
    std::string_view text;  // safe to send; valid until the next call
    // The stop string that was found; `text` is then the last piece.
    std::optional<std::string> match;
  };
  // Returns the text that may be sent. Text after a match is ignored.
  Piece push(std::string_view text);
  // Returns the held text when the answer ended without a match.
  std::string_view flush();

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;  // border[n]: longest proper border of the first n bytes
    // Length of the longest prefix of `text` that the answer ends with.
    uint32_t matched = 0;
  };
  static void advance(Stop& stop, char c);

  std::vector<Stop> stops_;  // longest first
  StopText stop_text_;
  bool done_ = false;
  std::string held_;
  std::string out_;
};

}  // namespace hocket
