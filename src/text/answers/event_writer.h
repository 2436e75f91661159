// Receives what the readers of one answer find, and makes events of it. It joins pieces, holds
// blanks that may be beside a call, gives calls their index and id, and turns a call that breaks
// back into its text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answers/answer_event.h"
#include "text/answers/tool_format.h"

namespace hocket {

class EventWriter {
 public:
  EventWriter(ToolFormat format, uint64_t id_seed) : format_(format), id_seed_(id_seed) {}

  // Sets the list that gets events; null: none, and no event may be written.
  void write_to(std::vector<AnswerEvent>* out) { out_ = out; }

  void reasoning(std::string_view piece) { append(AnswerEvent::Kind::reasoning, piece); }
  void prose(char c);
  void prose(std::string_view text);

  // A call may begin here, with this text. From here on its text is kept.
  void open(std::string_view text);
  void keep(char c) { raw_ += c; }
  size_t num_kept() const { return raw_.size(); }
  // The open text is a call of this function.
  void begin(std::string_view name);
  bool begun() const { return begun_; }
  void arguments(std::string_view json) { append(AnswerEvent::Kind::arguments, json); }
  // The call is whole; its kept text is dropped.
  void end();
  // The open text is no call: it becomes prose, with the warning "a call was taken as text: " +
  // why.
  void broken(std::string_view why);
  // No call had begun yet: the kept text becomes prose without a warning.
  void abandon() { prose(std::exchange(raw_, {})); }

  // The text to come may be calls and blanks alone, or something else, which the caller keeps. So
  // events and warnings wait.   Precondition: no call has begun yet.
  void await_calls() { awaited_ = Awaited::calls; }
  // Ends that: the events are written.
  void take_awaited();
  // Ends that: events, warnings and the open text are dropped.
  void drop_awaited();
  bool awaits_calls() const { return awaited_ != Awaited::nothing; }
  // Returns true if text that is no call came, or a call broke.
  bool missed_calls() const { return awaited_ == Awaited::missed; }

  void warn(std::string sentence);

  // Call when the answer has ended.
  void finish();

  int num_whole() const { return num_whole_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  enum class Awaited : uint8_t { nothing, calls, missed };

  void append(AnswerEvent::Kind kind, std::string_view piece);
  void emit(AnswerEvent::Kind kind);
  std::vector<AnswerEvent>& events() { return awaits_calls() ? waiting_ : *out_; }

  ToolFormat format_;
  uint64_t id_seed_;
  std::vector<AnswerEvent>* out_ = nullptr;
  std::string blanks_;  // blanks at the end of the prose so far
  std::string raw_;     // text of the call that is being read
  bool begun_ = false;
  Awaited awaited_ = Awaited::nothing;
  std::vector<AnswerEvent> waiting_;  // events of awaited calls
  int next_call_ = 0;                 // index of the open call, or of the next one
  int num_whole_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace hocket
