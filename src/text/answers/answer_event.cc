#include "text/answers/answer_event.h"

#include <algorithm>

namespace hocket {

void AnswerParts::add(const AnswerEvent& event) {
  using Kind = AnswerEvent::Kind;
  switch (event.kind) {
    case Kind::text:
    case Kind::reasoning: {
      const auto kind =
          event.kind == Kind::text ? AnswerPart::Kind::text : AnswerPart::Kind::reasoning;
      if (parts_.empty() || parts_.back().kind != kind)
        parts_.push_back({.kind = kind, .text = {}, .id = {}, .name = {}});
      parts_.back().text += event.text;
      return;
    }
    case Kind::call:
      parts_.push_back(
          {.kind = AnswerPart::Kind::call, .text = {}, .id = event.id, .name = event.name});
      open_ = true;
      return;
    case Kind::arguments:
      if (open_) parts_.back().text += event.text;
      return;
    case Kind::call_end:
      open_ = false;
      return;
    case Kind::call_broken:
      if (open_) parts_.pop_back();
      open_ = false;
      return;
  }
}

std::string AnswerParts::text_of(AnswerPart::Kind kind) const {
  std::string text;
  for (const AnswerPart& part : parts_)
    if (part.kind == kind) text += part.text;
  return text;
}

int AnswerParts::num_calls() const {
  const auto calls = std::ranges::count(parts_, AnswerPart::Kind::call, &AnswerPart::kind);
  return static_cast<int>(calls) - (open_ ? 1 : 0);
}

}  // namespace hocket
