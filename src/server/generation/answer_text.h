// Turns the tokens of one answer into what its client sees: text, cut at stop strings, and events
// of reasoning and tool calls if the request asks for them.
//
//   id -> Detokenizer -> StopMatcher, StopRegexSearch -> choice.text
//                                                     -> AnswerParser -> choice.events
//
// The job of the running answer owns it.   Thread: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation/answer.h"
#include "text/answers/answer_parser.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/stop_matcher.h"
#include "text/tokens/stop_regex.h"

namespace hocket {

class AnswerText {
 public:
  // `index` is the index of the choice in `answer`.
  AnswerText(const Answer& answer, size_t index);

  // Adds the token's text, if there is a tokenizer. Returns true if the answer is complete: it met
  // a stop string (choice.matched_stop) or the last tool call that the request allows.
  // Errors: those of StopRegexSearch::push; they end the answer.
  Result<bool> add(TokenId id, ChoiceAnswer& choice);
  // The answer has ended: adds the text that was held back. Errors: as add().
  Result<void> finish(ChoiceAnswer& choice);
  // Sets choice.num_shown and choice.shown_bytes.
  void count_shown(ChoiceAnswer& choice) const;
  // True if the last tool call that the request allows is complete.
  bool calls_done() const { return parser_ && parser_->done(); }
  // Returns warnings about the answer's format, one sentence each.
  std::span<const std::string> warnings() const;

 private:
  void note_text(std::string_view piece);
  Result<bool> show_until_stop(StopMatcher::Piece&& safe, ChoiceAnswer& choice);
  Result<void> emit_held_text(ChoiceAnswer& choice);
  void append(std::string_view text, ChoiceAnswer& choice);
  void count_reasoning(ChoiceAnswer& choice);
  void parse_to(ChoiceAnswer& choice, size_t end);

  std::optional<Detokenizer> detokenizer_;  // empty without a tokenizer
  std::optional<StopMatcher> matcher_;
  std::optional<StopRegexSearch> regex_;
  std::optional<AnswerParser> parser_;  // empty: all text is plain text
  bool reads_events_ = false;
  bool by_tokens_ = false;  // true: with log-probabilities text is shown by whole tokens
  size_t num_read_ = 0;     // bytes of choice.text that the parser has
  int num_thoughts_ = 0;    // tokens of reasoning that are not counted yet, for they may be calls
  bool whole_ = false;
  // A stop string may still remove text, so some text is held back. These members tell which tokens
  // the text shown so far covers.
  std::vector<size_t> ends_;  // end of each token's text in the uncut text; kUnknown: not known yet
  size_t num_whole_ = 0;      // tokens whose end is known
  size_t uncut_ = 0;          // bytes of text from the detokenizer
};

}  // namespace hocket
