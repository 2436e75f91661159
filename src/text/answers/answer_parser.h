// One answer's text, piece by piece as it is generated, to events: prose, thoughts, calls of tools.
//
//   text -> ReasoningSplitter -> thoughts | rest -> CallReader of the family -> prose | calls
//
// Invariants, for any text cut anywhere:
// * the events do not depend on the cuts, but for where pieces of one kind are parted;
// * nothing is lost but blanks beside marks: what is no call comes out as text, with a warning;
// * the pieces of arguments of a call that ends join to one JSON object.
// A name that no tool has is still a call where the family marks calls (the client answers that
// there is no such tool, and the model sees it), and text where only the name tells (bare JSON,
// pythonic).
// Owner: one running answer. Thread: one at a time. Memory: what a call has so far, up to kHeldMax.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/answer_event.h"
#include "text/answers/answer_format.h"
#include "text/answers/tool.h"

namespace hocket {

class AnswerParser {
 public:
  static constexpr size_t kHeldMax = size_t{4} << 20;  // of a call; a longer one is text
  static constexpr int kCallsMax = 256;                // of one answer; it ends with the last
  static constexpr size_t kWarningsMax = 8;

  struct Options {
    ToolFormat tools_as = ToolFormat::none;          // none: calls are text
    ReasoningFormat reasoning;                       // none: thoughts are text
    bool reasoning_open = false;                     // begins_with_reasoning
    std::shared_ptr<const std::vector<Tool>> tools;  // types of values, names of bare calls
    int calls_max = kCallsMax;                       // 1: without parallel calls
    uint64_t id_seed = 0;                            // ids are a function of it and the index
  };
  explicit AnswerParser(Options options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Appends to `out`.
  void push(std::string_view text, std::vector<AnswerEvent>& out);
  // The answer has ended, well or not: what was held back.
  void finish(std::vector<AnswerEvent>& out);

  // The text so far ends within the thoughts.
  bool in_reasoning() const;
  // calls_max calls are whole: what follows is not read.
  bool done() const;
  // One sentence each, without text of the answer; the first kWarningsMax.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The id of an answer's call: "call_" and 24 letters and digits; nine without the word for mistral,
// whose template takes no other.
std::string call_id(ToolFormat format, uint64_t id_seed, int index);

}  // namespace hocket
