#include "text/answers/reasoning_start.h"

#include <algorithm>
#include <string>

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

bool leaves_reasoning_open(const Json& message, const ReasoningFormat& format) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string()) return false;
  const auto& text = content->get_ref<const std::string&>();
  const size_t open = text.rfind(format.open), close = text.rfind(format.close);
  return open != std::string::npos && (close == std::string::npos || close < open);
}

// Returns true if the prompt stays the same when the model is asked to think.
bool thinks_unasked(const ChatInput& chat, const ChatTemplate& chat_template) {
  ChatInput question;
  question.messages = Json::array({{{"role", "user"}, {"content", "Go on."}}});
  question.kwargs = chat.kwargs;
  const auto as_it_is = chat_template.render(question);
  for (const char* name : {"enable_thinking", "thinking"}) question.kwargs[name] = true;
  const auto asked = chat_template.render(question);
  return as_it_is && asked && as_it_is->text() == asked->text();
}

}  // namespace

ReasoningStart reasoning_start(const ChatInput& chat, std::span<const TokenId> ids,
                               const ReasoningFormat& format, const Tokenizer& tokenizer) {
  if (!format) return ReasoningStart::none;
  if (chat.continue_final_message)
    return leaves_reasoning_open(chat.messages.back(), format) ? ReasoningStart::open
                                                               : ReasoningStart::none;
  constexpr size_t kTail = 16;  // tokens; any mark and the blanks behind it fit into them
  const auto end = ids.last(std::min(kTail, ids.size()));
  const std::string text = tokenizer.decode(end, SpecialTokens::keep).value_or("");
  if (begins_with_reasoning(format, text)) return ReasoningStart::open;
  return ends_reasoning(format, text) ? ReasoningStart::none : ReasoningStart::possible;
}

ReasoningStart reasoning_before_structure(ReasoningStart start, const ChatInput& chat,
                                          const ChatTemplate& chat_template) {
  const bool unwanted = start == ReasoningStart::possible && !thinks_unasked(chat, chat_template);
  return unwanted ? ReasoningStart::none : start;
}

std::vector<TokenId> control_tokens_of(std::span<const std::string_view> marks,
                                       const Tokenizer& tokenizer) {
  std::vector<TokenId> found;
  for (const std::string_view mark : marks)
    if (const auto id = tokenizer.find(mark); id && tokenizer.is_special(*id)) found.push_back(*id);
  std::ranges::sort(found);
  return found;
}

}  // namespace hocket
