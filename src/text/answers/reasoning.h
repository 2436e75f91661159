// Parts what a model thinks from what it answers, byte by byte. Blanks beside the marks are
// dropped. Thoughts come first or not at all: a mark later in the answer is text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/answer_format.h"
#include "text/answers/event_writer.h"
#include "text/answers/mark_finder.h"

namespace hocket {

class ReasoningSplitter {
 public:
  // `calls`: marks that begin a call; where one comes before the thoughts are closed, it ends them.
  ReasoningSplitter(const ReasoningFormat& format, bool open,
                    const std::vector<std::string_view>& calls);

  // Thoughts go to the writer, what belongs to the answer is appended to `rest`.
  void step(char c, EventWriter& writer, std::string& rest);
  void finish(EventWriter& writer, std::string& rest);

  bool in_reasoning() const { return at_ == At::thoughts || (at_ == At::begin && open_); }

 private:
  enum class At : uint8_t {
    begin,  // blanks, perhaps an open mark
    thoughts,
    closed,  // blanks before the answer
    answer,
  };
  void think(std::string_view text, EventWriter& writer);
  void settle(EventWriter& writer, std::string& rest);

  ReasoningFormat format_;
  bool open_;
  At at_ = At::begin;
  std::string held_;       // at the beginning: what may still be blanks and an open mark
  size_t num_blanks_ = 0;  // of held_, from its beginning
  MarkFinder finder_;      // mark 0 closes, the others begin calls
  std::string free_;
  std::string blanks_;  // the thoughts' end so far
  bool thought_ = false;
};

}  // namespace hocket
