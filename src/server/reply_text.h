// The text of one choice on its way out; inside of reply.cc.   Thread: that of the answer.
#pragma once

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/stop_regex.h"

namespace hocket {

inline constexpr size_t kEndUnknown = std::numeric_limits<size_t>::max();

// A choice's way from ids to text. Stop strings act on text, so what they may still swallow is held
// back; `ends` tells which tokens the text that came through covers.
struct TextState {
  std::optional<Detokenizer> detokenizer;  // none without a tokenizer
  std::optional<StopMatcher> matcher;
  std::optional<StopRegexSearch> regex;
  std::vector<size_t> ends;  // of each token's text in the uncut text; kEndUnknown: not whole yet
  size_t num_whole = 0;      // tokens whose end is known
  size_t uncut = 0;          // bytes that came out of the detokenizer

  void grow(std::string_view piece) {
    uncut += piece.size();
    if (piece.empty()) return;
    for (; num_whole < ends.size(); ++num_whole) ends[num_whole] = uncut;
  }
};

// Which tokens the text shows; at the end also the one that a stop string cut in the middle.
inline void count_shown(const TextState& state, ChoiceAnswer& choice) {
  size_t& n = choice.num_shown;
  while (n < state.num_whole && state.ends[n] <= choice.text.size()) ++n;
  choice.shown_bytes = n == 0 ? 0 : state.ends[n - 1];
  if (!choice.ended) return;
  if (n < state.num_whole && choice.shown_bytes < choice.text.size()) ++n;
  choice.shown_bytes = choice.text.size();
}

}  // namespace hocket
