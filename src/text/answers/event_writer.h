// Where the readers of one answer say what they have found. Joins pieces, holds back blanks that
// may turn out to stand beside a call, gives calls their index and id, and turns a call that breaks
// back into the text it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answers/answer_event.h"
#include "text/answers/answer_format.h"

namespace hocket {

class EventWriter {
 public:
  EventWriter(ToolFormat format, uint64_t id_seed) : format_(format), id_seed_(id_seed) {}

  // Where events go from now on; null: nowhere, and nothing may be said.
  void write_to(std::vector<AnswerEvent>* out) { out_ = out; }

  void reasoning(std::string_view piece) { append(AnswerEvent::Kind::reasoning, piece); }
  void prose(char c);
  void prose(std::string_view text);

  // A call may begin here, with this text. From now on what is read of it is kept.
  void open(std::string_view text);
  void keep(char c) { raw_ += c; }
  size_t num_kept() const { return raw_.size(); }
  // It is a call of this function.
  void begin(std::string_view name);
  bool begun() const { return begun_; }
  void arguments(std::string_view json) { append(AnswerEvent::Kind::arguments, json); }
  // It is whole, and what was kept is forgotten.
  void end();
  // It is none: what was kept becomes prose. `why` goes on "a call was taken as text: ".
  void broken(std::string_view why);
  // No call had begun yet: what was kept becomes prose without a word.
  void abandon() { prose(std::exchange(raw_, {})); }

  void warn(std::string sentence);

  // The answer has ended.
  void finish();

  int num_whole() const { return num_whole_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void append(AnswerEvent::Kind kind, std::string_view piece);
  void tell(AnswerEvent::Kind kind);

  ToolFormat format_;
  uint64_t id_seed_;
  std::vector<AnswerEvent>* out_ = nullptr;
  std::string blanks_;  // the prose's end so far
  std::string raw_;     // the call that is being read
  bool begun_ = false;
  int next_call_ = 0;  // index of the call that is being told, or of the next
  int num_whole_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace hocket
