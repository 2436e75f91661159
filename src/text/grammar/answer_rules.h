// One grammar for all of an answer, from its parts: thoughts, calls of tools in the words of the
// model's family, text of a form.
//
//   thoughts up to their end mark | calls, or text of the form, or free text with calls in it
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "core/grammar.h"
#include "text/answers/answer_format.h"
#include "text/answers/thoughts_ahead.h"
#include "text/answers/tool.h"
#include "text/tokenizer.h"

namespace hocket {

struct AnswerWish {
  std::span<const Tool> tools = {};  // none: no calls
  ToolChoice choice;
  ToolFormat format = ToolFormat::none;     // of the family
  bool parallel = true;                     // more than one call
  std::shared_ptr<const GrammarSpec> text;  // form of the text; null: free
  ThoughtsAhead thoughts = ThoughtsAhead::none;
  ReasoningFormat reasoning;
};

// Null where the answer is free. Where a call is asked for, there is none but calls, whatever the
// text would have to look like; where it is not, there are calls or the text, and arguments follow
// their schemas where tools are strict. Errors: invalid_request (what the family cannot write).
Result<std::shared_ptr<const GrammarSpec>> grammar_of_answer(const AnswerWish& wish,
                                                             const Tokenizer& tokenizer);

}  // namespace hocket
