// The parts of a model's answer: prose, reasoning, tool calls. Each API writes them in its own
// way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hocket {

// A call is reported as `call`, any number of `arguments`, then `call_end` or `call_broken`, with
// no other event between. Calls are numbered from 0 in the order of the answer.
struct AnswerEvent {
  enum class Kind : uint8_t {
    text,       // `text`: a piece of prose
    reasoning,  // `text`: a piece of the reasoning before the answer
    call,       // `call`, `id`, `name`: a call begins
    arguments,  // `call`, `text`: a piece of its arguments' JSON
    call_end,   // `call`: the pieces join to one JSON object
    // `call`: it is not a call. The pieces so far are no JSON value, so that no client can act on
    // half a call; the model's text follows as `text`.
    call_broken,
  };
  Kind kind = Kind::text;
  int call = 0;
  std::string id, name, text;

  bool operator==(const AnswerEvent&) const = default;
};

// One part of an answer: neighbouring pieces are joined, broken calls are left out.
struct AnswerPart {
  enum class Kind : uint8_t { text, reasoning, call };
  Kind kind = Kind::text;
  std::string text;      // prose, reasoning, or the arguments' JSON
  std::string id, name;  // only for calls

  bool operator==(const AnswerPart&) const = default;
};

class AnswerParts {
 public:
  void add(const AnswerEvent& event);

  // Returns the parts in the order of the answer.
  const std::vector<AnswerPart>& parts() const { return parts_; }
  // Returns all parts of a kind, joined.
  std::string text_of(AnswerPart::Kind kind) const;
  // Returns how many calls are whole.
  int num_calls() const;

 private:
  std::vector<AnswerPart> parts_;
  bool open_ = false;  // true: the last part is a call that has not ended
};

}  // namespace hocket
