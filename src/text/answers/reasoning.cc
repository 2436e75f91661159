#include "text/answers/reasoning.h"

#include <utility>

#include "text/answers/blank.h"

namespace hocket {
namespace {

std::vector<std::string_view> closing(std::string_view close,
                                      const std::vector<std::string_view>& calls) {
  std::vector<std::string_view> all = {close};
  all.insert(all.end(), calls.begin(), calls.end());
  return all;
}

}  // namespace

ReasoningSplitter::ReasoningSplitter(const ReasoningFormat& format, bool open,
                                     const std::vector<std::string_view>& calls)
    : format_(format), open_(open && format), finder_(closing(format_.close, calls)) {
  if (!format_) at_ = State::answer;
}

void ReasoningSplitter::think(std::string_view text, EventWriter& writer) {
  for (const char c : text) {
    if (is_blank(c)) {
      if (has_reasoning_) blanks_ += c;
      continue;
    }
    has_reasoning_ = true;
    writer.reasoning(std::exchange(blanks_, {}));
    writer.reasoning(std::string_view(&c, 1));
  }
}

// Takes a byte of the reasoning and returns the mark that it completes.
int ReasoningSplitter::find_mark(char c, EventWriter& writer) {
  const int mark = finder_.step(c, free_);
  think(std::exchange(free_, {}), writer);
  return mark;
}

void ReasoningSplitter::close() {
  blanks_.clear();
  at_ = State::closed;
}

void ReasoningSplitter::take_as_calls() {
  ended_by_calls_ = true;
  blanks_.clear();
  kept_.clear();
  at_ = State::answer;
}

void ReasoningSplitter::take_as_thought(EventWriter& writer, std::string& rest) {
  at_ = State::reasoning;
  for (const char c : std::exchange(kept_, {})) {
    if (at_ != State::reasoning) {
      step(c, writer, rest);
      continue;
    }
    const int mark = find_mark(c, writer);
    if (mark == 0) close();
    if (mark > 0) think(finder_.mark(mark), writer);
  }
}

// Called when the answer does not begin with an open mark, or not with a second one.
void ReasoningSplitter::settle(EventWriter& writer, std::string& rest) {
  std::string held = std::exchange(held_, {});
  at_ = open_ ? State::reasoning : State::answer;
  if (!open_) {
    rest += held;
    return;
  }
  for (const char c : held) step(c, writer, rest);
}

void ReasoningSplitter::step(char c, EventWriter& writer, std::string& rest) {
  switch (at_) {
    case State::begin: {
      held_ += c;
      if (is_blank(c) && num_blanks_ + 1 == held_.size()) {
        ++num_blanks_;
        return;
      }
      const std::string_view begun = std::string_view(held_).substr(num_blanks_);
      if (begun == format_.open) {
        held_.clear();
        at_ = State::reasoning;
      } else if (!std::string_view(format_.open).starts_with(begun)) {
        settle(writer, rest);
      }
      return;
    }
    case State::reasoning: {
      const int mark = find_mark(c, writer);
      if (mark == 0) close();
      if (mark <= 0) return;
      kept_ = finder_.mark(mark);
      rest += kept_;
      at_ = State::undecided;
      return;
    }
    case State::undecided:
      kept_ += c;
      rest += c;
      return;
    case State::closed:
      if (is_blank(c)) return;
      at_ = State::answer;
      [[fallthrough]];
    case State::answer:
      rest += c;
  }
}

void ReasoningSplitter::finish(EventWriter& writer, std::string& rest) {
  if (at_ == State::begin) settle(writer, rest);
  finder_.flush(free_);
  think(std::exchange(free_, {}), writer);
}

}  // namespace hocket
