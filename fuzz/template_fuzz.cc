// Fuzzes conversations with the bundled model's chat template. Any body gives a prompt or an error,
// and the prompt has no control tokens other than those of the template.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "server/apis/openai/openai_request.h"
#include "text/tokens/chat_template.h"

using namespace hocket;

namespace {

struct Text {
  Tokenizer tokenizer;
  ChatTemplate chat_template;
};

const Text& bundled() {
  static const Text text = [] {
    const std::filesystem::path dir = BUNDLED_MODEL;
    auto tokenizer = Tokenizer::load(dir);
    HOCKET_CHECK(tokenizer.has_value());
    auto chat = ChatTemplate::load(dir, *tokenizer);
    HOCKET_CHECK((chat.has_value() && chat->has_value()));
    return Text{*std::move(tokenizer), **std::move(chat)};
  }();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = parse_json_object({reinterpret_cast<const char*>(data), size});
  if (!body) return 0;
  Fields fields(*body);
  ChatInput chat;
  read_conversation(fields, chat);
  if (!fields.ok()) return 0;
  const auto prompt = bundled().chat_template.render(chat);
  if (!prompt) {
    HOCKET_CHECK(!prompt.error().message.empty());
    return 0;
  }
  const auto ids = bundled().tokenizer.encode(*prompt);
  HOCKET_CHECK(ids.has_value());
  // Each message opens at most one turn, a system turn may be added, and the answer's turn follows.
  const TokenId start = bundled().tokenizer.find("<|im_start|>").value();
  HOCKET_CHECK(static_cast<size_t>(std::ranges::count(*ids, start)) <= chat.messages.size() + 2);
  return 0;
}
