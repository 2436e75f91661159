// What a model's text says, part by part: prose, thoughts, calls of tools. Each API has its own
// words for these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hocket {

// A call is told as `call`, any number of `arguments`, then `call_end` or `call_broken`. Between
// these nothing else is told. Calls have one index after the other, from 0.
struct AnswerEvent {
  enum class Kind : uint8_t {
    text,         // `text`: a piece of prose
    reasoning,    // `text`: a piece of what the model thinks before it answers
    call,         // `call`, `id`, `name`: a call begins
    arguments,    // `call`, `text`: a piece of its arguments' JSON
    call_end,     // `call`: the pieces join to one JSON object
    call_broken,  // `call`: it is none after all. The pieces are no JSON value, so that nobody can
                  // act on half a call; what the model wrote follows as text
  };
  Kind kind = Kind::text;
  int call = 0;
  std::string id, name, text;

  bool operator==(const AnswerEvent&) const = default;
};

// The events of one answer, joined: neighbouring pieces are one part, broken calls are gone.
struct AnswerPart {
  enum class Kind : uint8_t { text, reasoning, call };
  Kind kind = Kind::text;
  std::string text;      // prose, thoughts, or the arguments' JSON
  std::string id, name;  // of a call

  bool operator==(const AnswerPart&) const = default;
};

class AnswerParts {
 public:
  void add(const AnswerEvent& event);

  // In the order in which the model wrote them.
  const std::vector<AnswerPart>& parts() const { return parts_; }
  // All parts of a kind as one text.
  std::string text_of(AnswerPart::Kind kind) const;
  // How many calls are whole.
  int num_calls() const;

 private:
  std::vector<AnswerPart> parts_;
  bool open_ = false;  // the last part is a call that has not ended
};

}  // namespace hocket
