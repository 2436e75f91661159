// Writes one grammar for a whole answer: reasoning, tool calls in the format of the model's
// family, and text of a given structure.
//
//   reasoning up to its end mark | calls, or text of the structure, or free text with calls in it
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "core/grammar_spec.h"
#include "text/answers/reasoning_start.h"
#include "text/answers/tool.h"
#include "text/answers/tool_format.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

struct AnswerSpec {
  std::span<const Tool> tools = {};  // empty: no calls
  ToolChoice choice;
  ToolFormat format = ToolFormat::none;     // the format of the model's family
  bool parallel = true;                     // true: more than one call is allowed
  std::shared_ptr<const GrammarSpec> text;  // the structure of the text; null: free
  ReasoningStart reasoning_start = ReasoningStart::none;
  ReasoningFormat reasoning;
};

// Returns null if the answer is free. If a call is required, the grammar allows only calls,
// whatever `text` asks for. Otherwise it allows calls or the text, and arguments follow their
// schemas if tools are strict. Errors: invalid_request (an answer that the family cannot write).
Result<std::shared_ptr<const GrammarSpec>> grammar_of_answer(const AnswerSpec& spec,
                                                             const Tokenizer& tokenizer);

}  // namespace hocket
