// One answer's way from tokens to what its client is told: text, stop strings, and where the
// request asks for it thoughts and calls of tools.
//
//   id -> Detokenizer -> StopMatcher, StopRegexSearch -> choice.text -> AnswerParser ->
//   choice.events
//
// Owner: a running answer.   Thread: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/answer.h"
#include "text/answers/answer_parser.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/stop_regex.h"

namespace hocket {

class AnswerText {
 public:
  // For the choice of this index in `answer`.
  AnswerText(const Answer& answer, size_t index);

  // The next token's text, where there is a tokenizer. True: the answer is whole with it, by a stop
  // string (choice.matched_stop) or by the last call that the request allows. Errors: those of
  // StopRegexSearch::push; the answer ends with it.
  Result<bool> add(TokenId id, ChoiceAnswer& choice);
  // The answer has ended: what was held back. Errors: likewise.
  Result<void> finish(ChoiceAnswer& choice);
  // Sets num_shown and shown_bytes.
  void count_shown(ChoiceAnswer& choice) const;
  // The last call that the request allows is whole.
  bool calls_done() const { return parser_ && parser_->done(); }
  // What was odd about it, a sentence each.
  std::span<const std::string> warnings() const;

 private:
  void grow(std::string_view piece);
  Result<bool> take(StopMatcher::Piece&& safe, ChoiceAnswer& choice);
  Result<void> take_rest(ChoiceAnswer& choice);
  void show(std::string_view text, ChoiceAnswer& choice);
  void read(ChoiceAnswer& choice, size_t end);

  std::optional<Detokenizer> detokenizer_;  // none without a tokenizer
  std::optional<StopMatcher> matcher_;
  std::optional<StopRegexSearch> regex_;
  std::optional<AnswerParser> parser_;  // none: all text is prose
  bool tells_events_ = false;
  bool by_tokens_ = false;  // with log-probabilities what is told moves by whole tokens
  size_t num_read_ = 0;     // bytes of choice.text that the parser has
  bool whole_ = false;
  // Stop strings act on text, so what they may still swallow is held back; these tell which tokens
  // the text that came through covers.
  std::vector<size_t> ends_;  // of each token's text in the uncut text; kUnknown: not whole yet
  size_t num_whole_ = 0;      // tokens whose end is known
  size_t uncut_ = 0;          // bytes that came out of the detokenizer
};

}  // namespace hocket
