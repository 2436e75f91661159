// Separates reasoning from the answer, byte by byte, and drops blanks beside the marks. Reasoning
// is first or absent: a mark later in the answer is text.
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
  // `calls`: marks that begin a call; one before the end of the reasoning ends it.
  ReasoningSplitter(const ReasoningFormat& format, bool open,
                    const std::vector<std::string_view>& calls);

  // Passes reasoning to the writer and appends text of the answer to `rest`.
  void step(char c, EventWriter& writer, std::string& rest);
  void finish(EventWriter& writer, std::string& rest);

  bool in_reasoning() const { return at_ == State::reasoning || (at_ == State::begin && open_); }

 private:
  enum class State : uint8_t {
    begin,  // blanks, perhaps an open mark
    reasoning,
    closed,  // blanks before the answer
    answer,
  };
  void think(std::string_view text, EventWriter& writer);
  void settle(EventWriter& writer, std::string& rest);

  ReasoningFormat format_;
  bool open_;
  State at_ = State::begin;
  std::string held_;       // at the beginning: blanks and perhaps a part of the open mark
  size_t num_blanks_ = 0;  // blanks at the beginning of held_
  MarkFinder finder_;      // mark 0 closes the reasoning, the others begin calls
  std::string free_;
  std::string blanks_;  // blanks at the end of the reasoning so far
  bool has_reasoning_ = false;
};

}  // namespace hocket
