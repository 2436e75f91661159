#include "text/answers/event_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"

namespace hocket {
namespace {

constexpr size_t kMaxBlanks = 4096;

}  // namespace

void EventWriter::append(AnswerEvent::Kind kind, std::string_view piece) {
  if (piece.empty() || missed_calls()) return;
  HOCKET_CHECK(out_ != nullptr);
  const bool extends_last = !events().empty() && events().back().kind == kind;
  if (!extends_last) emit(kind);
  events().back().text += piece;
}

void EventWriter::emit(AnswerEvent::Kind kind) {
  HOCKET_CHECK(out_ != nullptr);
  AnswerEvent& event = events().emplace_back();
  event.kind = kind;
  const bool of_call = kind != AnswerEvent::Kind::text && kind != AnswerEvent::Kind::reasoning;
  if (of_call) event.call = next_call_;
}

void EventWriter::prose(char c) {
  if (awaits_calls()) {
    if (!is_blank(c)) awaited_ = Awaited::missed;
    return;
  }
  if (format_ != ToolFormat::none && is_blank(c) && blanks_.size() < kMaxBlanks) {
    blanks_ += c;
    return;
  }
  append(AnswerEvent::Kind::text, std::exchange(blanks_, {}));
  append(AnswerEvent::Kind::text, std::string_view(&c, 1));
}

void EventWriter::prose(std::string_view text) {
  for (const char c : text) prose(c);
}

void EventWriter::take_awaited() {
  awaited_ = Awaited::nothing;
  std::ranges::move(waiting_, std::back_inserter(*out_));
  waiting_.clear();
}

void EventWriter::drop_awaited() {
  awaited_ = Awaited::nothing;
  waiting_.clear();
  warnings_.clear();
  raw_.clear();
  begun_ = false;
  next_call_ = num_whole_ = 0;
}

void EventWriter::open(std::string_view text) {
  raw_ = text;
  begun_ = false;
}

void EventWriter::begin(std::string_view name) {
  if (missed_calls()) return;
  begun_ = true;
  emit(AnswerEvent::Kind::call);
  events().back().id = call_id(format_, id_seed_, next_call_);
  events().back().name = name;
}

void EventWriter::end() {
  if (missed_calls()) return;
  emit(AnswerEvent::Kind::call_end);
  ++next_call_;
  ++num_whole_;
  begun_ = false;
  raw_.clear();
}

void EventWriter::broken(std::string_view why) {
  if (awaits_calls()) {
    awaited_ = Awaited::missed;
    return;
  }
  if (begun_) {
    emit(AnswerEvent::Kind::call_broken);
    ++next_call_;
  }
  begun_ = false;
  warn(fmt::format("a call was taken as text: {}", why));
  prose(std::exchange(raw_, {}));
}

void EventWriter::warn(std::string sentence) {
  if (missed_calls()) return;
  if (warnings_.size() < AnswerParser::kMaxWarnings) warnings_.push_back(std::move(sentence));
}

void EventWriter::finish() {
  // Blanks around calls belong to the calls; without any call they belong to the answer.
  if (num_whole_ == 0) append(AnswerEvent::Kind::text, blanks_);
  blanks_.clear();
}

}  // namespace hocket
