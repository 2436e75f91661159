// What an answer says outside of its calls: told as prose, all but the marks that begin a call.
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
  // `marks` live longer than this, as does the writer.
  ProseScan(EventWriter* writer, std::vector<std::string_view> marks)
      : writer_(writer), finder_(std::move(marks)) {}

  // The mark that this byte completes; empty: none.
  std::string_view step(char c) {
    std::string free;
    const int mark = finder_.step(c, free);
    writer_->prose(free);
    return mark == MarkFinder::kNone ? std::string_view() : finder_.mark(mark);
  }
  // The answer has ended: what might have become a mark is prose.
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
