// Writes one grammar for a whole answer: thoughts, calls of tools in the form of the model's
// family, and text of a given form.
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
#include "text/tokens/tokenizer.h"

namespace hocket {

struct AnswerWish {
  std::span<const Tool> tools = {};  // empty: no calls
  ToolChoice choice;
  ToolFormat format = ToolFormat::none;     // the form of the model's family
  bool parallel = true;                     // true: more than one call is allowed
  std::shared_ptr<const GrammarSpec> text;  // form of the text; null: free
  ThoughtsAhead thoughts = ThoughtsAhead::none;
  ReasoningFormat reasoning;
};

// Returns null if the answer is free. If a call is required, the grammar allows only calls,
// whatever `text` asks for. Otherwise it allows calls or the text, and arguments follow their
// schemas if tools are strict. Errors: invalid_request (a wish that the family cannot write).
Result<std::shared_ptr<const GrammarSpec>> grammar_of_answer(const AnswerWish& wish,
                                                             const Tokenizer& tokenizer);

}  // namespace hocket
