// Reports an answer part by part, for APIs that put each piece of text, of reasoning, and each tool
// call into an item of its own.
//
//   events: text text call arguments call_end text  ->  begin piece.. end | begin piece.. end | ...
#pragma once

#include <string_view>

#include "server/generation/answer.h"

namespace hocket {

// broken: the text was no valid call. cut: the answer ended within a call.
enum class PartEnd : uint8_t { whole, broken, cut };

// Receives the parts. `first` is the event that begins the part: text, reasoning or call; `index`
// counts parts from 0.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual void begin(const AnswerEvent& first, int index) = 0;
  virtual void piece(const AnswerEvent& first, int index, std::string_view text) = 0;
  // `text` is the whole text of the part.
  virtual void end(const AnswerEvent& first, int index, std::string_view text, PartEnd how) = 0;
};

// Reports the events of choice.events beyond `sent`, and advances `sent`. Once the choice has
// ended, the last part is reported to its end too.
void emit_new_parts(const ChoiceAnswer& choice, StreamCursor& sent, PartSink& sink);
// Reports all events of the choice, from the first.
void emit_all_parts(const ChoiceAnswer& choice, PartSink& sink);

}  // namespace hocket
