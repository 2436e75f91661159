// Turns one answer's text, piece by piece as it is generated, into events: prose, reasoning, calls.
//
//   text -> ReasoningSplitter -> reasoning | rest -> CallReader of the family -> prose | calls
//
// Invariants, for any text cut anywhere:
// * the events do not depend on the cuts, except for where pieces of one kind are divided;
// * only blanks beside marks are lost: text that is no call is prose, with a warning, or reasoning;
// * the pieces of arguments of a call that ends join to one JSON object.
// A call of an unknown name is still a call if the family marks calls (the client answers that
// there is no such tool, and the model sees it). It is text where only the name shows that it is a
// call (bare JSON, pythonic). Owner: one running answer. Thread: one at a time. Memory: the current
// call, and calls within reasoning, each up to kMaxHeld bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/answer_event.h"
#include "text/answers/tool.h"
#include "text/answers/tool_format.h"

namespace hocket {

class AnswerParser {
 public:
  // Bytes of one call; a longer call becomes text.
  static constexpr size_t kMaxHeld = size_t{4} << 20;
  static constexpr int kMaxCalls = 256;  // calls of one answer; it ends with the last
  static constexpr size_t kMaxWarnings = 8;

  struct Options {
    ToolFormat tools_as = ToolFormat::none;          // none: calls stay text
    ReasoningFormat reasoning;                       // none: reasoning stays text
    bool reasoning_open = false;                     // see begins_with_reasoning()
    std::shared_ptr<const std::vector<Tool>> tools;  // types of values, names of bare calls
    int max_calls = kMaxCalls;                       // 1: no parallel calls
    // Ids are a function of this seed and the call's index.
    uint64_t id_seed = 0;
  };
  explicit AnswerParser(Options options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Parses the next piece; appends events to `out`.
  void push(std::string_view text, std::vector<AnswerEvent>& out);
  // Ends the answer, complete or not; appends the events of held text.
  void finish(std::vector<AnswerEvent>& out);

  // Returns true if the text so far ends within the reasoning.
  bool in_reasoning() const;
  // Returns true if the text so far ends within reasoning that may prove to be calls.
  bool may_be_calls() const;
  // Returns true if calls, not a mark, ended the reasoning.
  bool calls_ended_reasoning() const;
  // Returns true if max_calls calls are whole; text after them is not read.
  bool done() const;
  // Returns the first kMaxWarnings warnings, a sentence each, without text of the answer.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the id of an answer's call: "call_" and 24 letters and digits; for mistral only nine
// letters and digits, because its template refuses others.
std::string call_id(ToolFormat format, uint64_t id_seed, int index);

}  // namespace hocket
