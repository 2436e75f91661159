#include "server/protocol/structure_settling.h"

#include <memory>
#include <utility>

#include "text/answers/call_reader.h"

namespace hocket {
namespace {

using Kind = ToolChoice::Kind;

std::vector<TokenId> ids_of(std::string_view mark, const Tokenizer& tokenizer) {
  return tokenizer.encode(mark, {.add_special_tokens = false}).value_or(std::vector<TokenId>());
}

std::shared_ptr<const ThoughtLimit> limit_of(ThoughtsAhead thoughts, const AnswerReading& reading,
                                             const ServedModel& model) {
  if (!reading.thinking_budget || thoughts == ThoughtsAhead::none) return nullptr;
  const ReasoningFormat& format = model.formats->reasoning;
  ThoughtLimit limit{.tokens = *reading.thinking_budget, .open = {}, .ends = {}};
  if (thoughts == ThoughtsAhead::possible) limit.open = ids_of(format.open, *model.tokenizer);
  limit.ends.push_back(ids_of(format.close, *model.tokenizer));
  if (reading.tools)  // a call ends them too
    for (const std::string_view mark : opening_marks(reading.tools_as))
      limit.ends.push_back(ids_of(mark, *model.tokenizer));
  std::erase_if(limit.ends, [](const auto& end) { return end.empty(); });
  if (limit.ends.empty()) return nullptr;
  return std::make_shared<const ThoughtLimit>(std::move(limit));
}

// Whether the model is expected to think though it must open its thoughts itself: asking it to
// would not change the prompt. A grammar that left room for thoughts where nobody wants any would
// ask for them.
bool thinks_unasked(const Prompt& prompt, const ServedModel& model) {
  const auto* chat = std::get_if<ChatInput>(&prompt.input);
  if (chat == nullptr || model.chat_template == nullptr) return false;
  ChatInput question;
  question.messages = Json::array({{{"role", "user"}, {"content", "Go on."}}});
  question.kwargs = chat->kwargs;
  const auto as_it_is = model.chat_template->render(question);
  for (const char* name : {"enable_thinking", "thinking"}) question.kwargs[name] = true;
  const auto asked = model.chat_template->render(question);
  return as_it_is && asked && as_it_is->text() == asked->text();
}

}  // namespace

Result<void> settle_structure(Prompt& prompt, std::span<const TokenId> ids,
                              const AnswerReading& reading, const ServedModel& model) {
  if (model.tokenizer == nullptr) return {};
  const ThoughtsAhead thoughts = thoughts_ahead(prompt, ids, model);
  prompt.reasoning_open = thoughts == ThoughtsAhead::open && reading.reasoning;
  SamplingParams& sampling = prompt.sampling;
  sampling.thoughts = limit_of(thoughts, reading, model);
  const bool forced = reading.choice.kind == Kind::required || reading.choice.kind == Kind::named;
  // Without structured output strict tools are a wish, as other tools are.
  const bool can = model.info->grammar_backend != "none" || forced || sampling.grammar != nullptr;
  if (!can || (!reading.tools && sampling.grammar == nullptr)) return {};
  AnswerWish wish{.tools = {},
                  .choice = reading.choice,
                  .format = reading.tools_as,
                  .parallel = reading.parallel,
                  .text = sampling.grammar,
                  .thoughts = thoughts,
                  .reasoning = {}};
  if (reading.tools) wish.tools = *reading.tools;
  if (model.formats != nullptr) wish.reasoning = model.formats->reasoning;
  if (thoughts == ThoughtsAhead::possible && !thinks_unasked(prompt, model))
    wish.thoughts = ThoughtsAhead::none;
  HOCKET_TRY(sampling.grammar, grammar_of_answer(wish, *model.tokenizer));
  return {};
}

}  // namespace hocket
