#include "server/generation/structure_settling.h"

#include <memory>
#include <utility>

#include "text/answers/call_reader.h"
#include "text/grammar/answer_rules.h"

namespace hocket {
namespace {

using ChoiceKind = ToolChoice::Kind;

std::vector<TokenId> ids_of(std::string_view mark, const Tokenizer& tokenizer) {
  return tokenizer.encode(mark, {.add_special_tokens = false}).value_or(std::vector<TokenId>());
}

std::shared_ptr<const ReasoningLimit> limit_of(ReasoningStart start, const AnswerReading& reading,
                                               const ServedModel& model) {
  if (!reading.thinking_budget || start == ReasoningStart::none) return nullptr;
  const ReasoningFormat& format = model.formats->reasoning;
  ReasoningLimit limit{.tokens = *reading.thinking_budget, .open = {}, .ends = {}};
  if (start == ReasoningStart::possible) limit.open = ids_of(format.open, *model.tokenizer);
  limit.ends.push_back(ids_of(format.close, *model.tokenizer));
  if (reading.tools)  // a call ends them too
    for (const std::string_view mark : opening_marks(reading.tools_as))
      limit.ends.push_back(ids_of(mark, *model.tokenizer));
  std::erase_if(limit.ends, [](const auto& end) { return end.empty(); });
  if (limit.ends.empty()) return nullptr;
  return std::make_shared<const ReasoningLimit>(std::move(limit));
}

// Returns the prompt's chat; null if the prompt is no chat, since its answer's structure is then
// unknown.
const ChatInput* thinking_chat(const Prompt& prompt, const ServedModel& model) {
  if (model.formats == nullptr || model.chat_template == nullptr) return nullptr;
  return std::get_if<ChatInput>(&prompt.input);
}

}  // namespace

Result<void> settle_structure(Prompt& prompt, std::span<const TokenId> ids,
                              const AnswerReading& reading, const ServedModel& model) {
  if (model.tokenizer == nullptr) return {};
  const ChatInput* chat = thinking_chat(prompt, model);
  const ReasoningStart start =
      chat == nullptr ? ReasoningStart::none
                      : reasoning_start(*chat, ids, model.formats->reasoning, *model.tokenizer);
  prompt.reasoning_open = start == ReasoningStart::open && reading.reasoning;
  SamplingParams& sampling = prompt.sampling;
  sampling.reasoning_limit = limit_of(start, reading, model);
  const bool forced =
      reading.choice.kind == ChoiceKind::required || reading.choice.kind == ChoiceKind::named;
  // Without a grammar backend strict tools are a preference, as other tools are.
  const bool can = model.info->grammar_backend != "none" || forced || sampling.grammar != nullptr;
  if (!can || (!reading.tools && sampling.grammar == nullptr)) return {};
  AnswerSpec spec{.tools = {},
                  .choice = reading.choice,
                  .format = reading.tools_as,
                  .parallel = reading.parallel,
                  .text = sampling.grammar,
                  .reasoning_start = start,
                  .reasoning = {}};
  if (reading.tools) spec.tools = *reading.tools;
  if (model.formats != nullptr) spec.reasoning = model.formats->reasoning;
  if (chat != nullptr)
    spec.reasoning_start = reasoning_before_structure(start, *chat, *model.chat_template);
  HOCKET_TRY(sampling.grammar, grammar_of_answer(spec, *model.tokenizer));
  return {};
}

}  // namespace hocket
