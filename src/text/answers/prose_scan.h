// Passes the text of an answer outside of its calls on as prose, and finds the marks that begin
// calls.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answers/event_writer.h"
#include "text/answers/mark_finder.h"

namespace hocket {

class ProseScan {
 public:
  // `marks` and the writer must outlive this object.
  ProseScan(EventWriter* writer, std::vector<std::string_view> marks)
      : writer_(writer), finder_(std::move(marks)) {}

  // Takes a byte; returns the mark that it completes, or an empty text.
  std::string_view step(char c) {
    std::string free;
    const int mark = finder_.step(c, free);
    writer_->prose(free);
    return mark == MarkFinder::kNone ? std::string_view() : finder_.mark(mark);
  }
  // Ends the answer: text that might have become a mark is prose.
  void finish() {
    std::string free;
    finder_.flush(free);
    writer_->prose(free);
  }

 private:
  EventWriter* writer_;
  MarkFinder finder_;
};

}  // namespace hocket
