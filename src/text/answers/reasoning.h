// Separates reasoning from the answer, byte by byte, and drops blanks beside the marks. Reasoning
// is first or absent: a mark later in the answer is text.
//
// Some models call without an end of their reasoning, and others think about calls. Text within the
// reasoning is calls if whole ones and blanks are all that comes up to the answer's end; a mark
// that closes the reasoning makes it a thought, even one within arguments. So the text from a mark
// of calls on is passed on as that of calls, and kept until the caller says which it is:
//
//   reasoning -- mark of calls --> undecided -- take_as_calls() --> answer
//       ^                              |
//       +------ take_as_thought() -----+
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/event_writer.h"
#include "text/answers/mark_finder.h"
#include "text/answers/tool_format.h"

namespace hocket {

class ReasoningSplitter {
 public:
  // `calls`: marks that begin a call.
  ReasoningSplitter(const ReasoningFormat& format, bool open,
                    const std::vector<std::string_view>& calls);

  // Passes reasoning to the writer and appends text of the answer to `rest`.
  void step(char c, EventWriter& writer, std::string& rest);
  // Precondition: it is not undecided.
  void finish(EventWriter& writer, std::string& rest);

  // True behind a mark in the reasoning that begins calls. The text from the mark on is in `rest`
  // of step().
  bool is_undecided() const { return at_ == State::undecided; }
  // Returns true if that text ends with the mark that closes the reasoning.
  bool is_closed() const { return kept_.ends_with(format_.close); }
  size_t num_kept() const { return kept_.size(); }
  // That text is calls.   Precondition: it is undecided.
  void take_as_calls();
  bool is_ended_by_calls() const { return ended_by_calls_; }
  // That text is reasoning, up to a mark that closes it; what follows is appended to `rest`. Marks
  // that begin calls are reasoning, too.   Precondition: it is undecided.
  void take_as_thought(EventWriter& writer, std::string& rest);

  bool in_reasoning() const {
    return at_ == State::reasoning || is_undecided() || (at_ == State::begin && open_);
  }

 private:
  enum class State : uint8_t {
    begin,  // blanks, perhaps an open mark
    reasoning,
    undecided,
    closed,  // blanks before the answer
    answer,
  };
  void think(std::string_view text, EventWriter& writer);
  int find_mark(char c, EventWriter& writer);
  void close();
  void settle(EventWriter& writer, std::string& rest);

  ReasoningFormat format_;
  bool open_;
  State at_ = State::begin;
  std::string held_;       // at the beginning: blanks and perhaps a part of the open mark
  size_t num_blanks_ = 0;  // blanks at the beginning of held_
  MarkFinder finder_;      // mark 0 closes the reasoning, the others begin calls
  std::string free_;
  std::string blanks_;  // blanks at the end of the reasoning so far
  std::string kept_;    // the text that is undecided
  bool has_reasoning_ = false;
  bool ended_by_calls_ = false;
};

}  // namespace hocket
