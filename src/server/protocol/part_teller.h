// An answer part by part, as APIs tell it that give each stretch of prose, of thoughts, and each
// call of a tool a place of its own.
//
//   events: text text call arguments call_end text  ->  begin piece.. end | begin piece.. end | ...
#pragma once

#include <string_view>

#include "server/protocol/answer.h"

namespace hocket {

enum class PartEnd : uint8_t { whole, broken, cut };  // a call that is none; where the answer ended

// What is told. `first` begins the part: text, reasoning or call; `index` counts parts from 0.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual void begin(const AnswerEvent& first, int index) = 0;
  virtual void piece(const AnswerEvent& first, int index, std::string_view text) = 0;
  // `text`: all pieces.
  virtual void end(const AnswerEvent& first, int index, std::string_view text, PartEnd how) = 0;
};

// Tells what choice.events has beyond `sent`, which moves along. Once the choice has ended, the
// last part too is told to its end.
void tell_news(const ChoiceAnswer& choice, ChoiceAnswer::Sent& sent, PartSink& sink);
// The same from the first event on.
void tell_all(const ChoiceAnswer& choice, PartSink& sink);

}  // namespace hocket
