#include "server/apis/anthropic/content_blocks.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "server/apis/openai/chat_translation.h"

namespace hocket {
namespace {

void append_paragraph(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

// Calls `take` for each block of a content; a string counts as one block. `at` names the content.
Result<void> for_each_block(const Json& content, const std::string& at,
                            const std::function<Result<void>(const std::string& type, const Json&,
                                                             const std::string&)>& take) {
  if (content.is_string()) return take("text", Json{{"type", "text"}, {"text", content}}, at);
  if (!content.is_array())
    return wrong_part(at, fmt::format("must be a string or a list of content blocks, not {}",
                                      type_name(content)));
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", at, i);
    if (!content[i].is_object())
      return wrong_part(where,
                        fmt::format("must be a content block, not {}", type_name(content[i])));
    HOCKET_TRY(const std::string type, string_member(content[i], "type", where));
    HOCKET_TRY_VOID(take(type, content[i], where));
  }
  return {};
}

std::unexpected<Error> unknown_block(const std::string& type, const std::string& at,
                                     std::string_view known) {
  return wrong_part(at + ".type",
                    fmt::format("is '{}'; here it must be {}", type.substr(0, 64), known));
}

// Returns the text of a content that may hold text blocks only.
Result<std::string> plain_text(const Json& content, const std::string& at) {
  std::string text;
  const auto take = [&](const std::string& type, const Json& block,
                        const std::string& where) -> Result<void> {
    if (type != "text") return unknown_block(type, where, "text: this model reads text only");
    HOCKET_TRY(const std::string words, string_member(block, "text", where));
    append_paragraph(text, words);
    return {};
  };
  HOCKET_TRY_VOID(for_each_block(content, at, take));
  return text;
}

class BlockConversation {
 public:
  explicit BlockConversation(Json& out) : out_(out) {}

  Result<void> add_user(const Json& content, const std::string& at) {
    std::string text;
    const auto say = [&] {
      if (!text.empty()) out_.push_back({{"role", "user"}, {"content", text}});
      text.clear();
    };
    const size_t before = out_.size();
    const auto take = [&](const std::string& type, const Json& block,
                          const std::string& where) -> Result<void> {
      if (type == "text") {
        HOCKET_TRY(const std::string words, string_member(block, "text", where));
        append_paragraph(text, words);
        return {};
      }
      if (type != "tool_result")
        return unknown_block(type, where, "text or tool_result: this model reads text only");
      say();
      return add_result(block, where);
    };
    HOCKET_TRY_VOID(for_each_block(content, at, take));
    if (text.empty() && out_.size() == before) return wrong_part(at, "must not be empty");
    say();
    return {};
  }

  Result<void> add_assistant(const Json& content, const std::string& at) {
    std::string text, reasoning;
    Json calls = Json::array();
    const auto take = [&](const std::string& type, const Json& block,
                          const std::string& where) -> Result<void> {
      if (type == "text") {
        HOCKET_TRY(const std::string words, string_member(block, "text", where));
        text += words;
      } else if (type == "thinking") {
        HOCKET_TRY(const std::string words, string_member(block, "thinking", where));
        reasoning += words;
      } else if (type == "tool_use") {
        HOCKET_TRY_VOID(add_call(block, where, calls));
      } else if (type != "redacted_thinking") {  // only Anthropic can read it
        return unknown_block(type, where, "text, thinking, redacted_thinking or tool_use");
      }
      return {};
    };
    HOCKET_TRY_VOID(for_each_block(content, at, take));
    Json message = {{"role", "assistant"}, {"content", std::move(text)}};
    if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    out_.push_back(std::move(message));
    return {};
  }

 private:
  Result<void> add_call(const Json& block, const std::string& at, Json& calls) {
    HOCKET_TRY(std::string id, string_member(block, "id", at));
    HOCKET_TRY(std::string name, string_member(block, "name", at));
    const auto input = block.find("input");
    if (input == block.end() || !input->is_object())
      return wrong_part(at + ".input", "must be an object");
    names_[id] = name;
    calls.push_back({{"id", std::move(id)},
                     {"type", "function"},
                     {"function", {{"name", std::move(name)}, {"arguments", to_text(*input)}}}});
    return {};
  }

  // Adds the tool's name from the call, for templates that print it.
  Result<void> add_result(const Json& block, const std::string& at) {
    HOCKET_TRY(std::string id, string_member(block, "tool_use_id", at));
    const auto content = block.find("content");
    std::string text;
    if (content != block.end() && !content->is_null()) {
      HOCKET_TRY(text, plain_text(*content, at + ".content"));
    }
    Json message = {{"role", "tool"}, {"tool_call_id", id}};
    if (const auto name = names_.find(id); name != names_.end()) message["name"] = name->second;
    message["content"] = std::move(text);
    out_.push_back(std::move(message));
    return {};
  }

  Json& out_;
  std::map<std::string, std::string> names_;  // tools by call id; clients can make hashes collide
};

}  // namespace

Result<void> add_chat_messages(const Json* system, const Json& messages, Json& out) {
  if (system != nullptr) {
    HOCKET_TRY(std::string text, plain_text(*system, "system"));
    if (!text.empty()) out.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  if (!messages.is_array() || messages.empty() || messages.size() > kMaxMessages)
    return wrong_part("messages", fmt::format("must be a list of 1 to {} messages", kMaxMessages));
  BlockConversation conversation(out);
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string at = fmt::format("messages[{}]", i);
    const Json& message = messages[i];
    if (!message.is_object()) return wrong_part(at, "must be an object");
    HOCKET_TRY(const std::string role, string_member(message, "role", at));
    const auto content = message.find("content");
    if (content == message.end()) return wrong_part(at + ".content", "is missing");
    if (role == "user") {
      HOCKET_TRY_VOID(conversation.add_user(*content, at + ".content"));
    } else if (role == "assistant") {
      HOCKET_TRY_VOID(conversation.add_assistant(*content, at + ".content"));
    } else {
      return wrong_part(at + ".role", fmt::format("is '{}'; it must be user or assistant (what the "
                                                  "system says is the field system)",
                                                  role.substr(0, 64)));
    }
  }
  return {};
}

}  // namespace hocket
