#include "server/apis/responses/response_items.h"

#include <fmt/format.h>

#include <map>

#include "server/apis/openai/chat_translation.h"

namespace hocket {
namespace {

// Returns the text of a string, or of a list of parts with text.
Result<std::string> text_of(const Json& content, const std::string& at) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return wrong_part(
        at, fmt::format("must be a string or a list of parts, not {}", type_name(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", at, i);
    if (!content[i].is_object())
      return wrong_part(where, fmt::format("must be an object, not {}", type_name(content[i])));
    HOCKET_TRY(const std::string type, string_member(content[i], "type", where));
    const bool words = type == "input_text" || type == "output_text" || type == "text" ||
                       type == "reasoning_text" || type == "summary_text";
    if (!words && type != "refusal")
      return wrong_part(
          where + ".type",
          fmt::format("is '{}'; it must be input_text or output_text: this model reads "
                      "text only",
                      type.substr(0, 64)));
    HOCKET_TRY(const std::string piece,
               string_member(content[i], words ? "text" : "refusal", where));
    text += piece;
  }
  return text;
}

bool has_text(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() &&
         !content->get_ref<const std::string&>().empty();
}

class ItemConversation {
 public:
  explicit ItemConversation(Json& out) : out_(out) {
    for (const Json& message : out)
      if (const auto calls = message.find("tool_calls"); calls != message.end())
        for (const Json& call : *calls) names_[call["id"]] = call["function"]["name"];
  }

  Result<void> add(const Json& item, const std::string& at) {
    if (!item.is_object())
      return wrong_part(at, fmt::format("must be an item, not {}", type_name(item)));
    const auto type = item.find("type");
    if (type == item.end() || type->is_null() || *type == "message") return add_message(item, at);
    if (*type == "function_call") return add_call(item, at);
    if (*type == "function_call_output") return add_result(item, at);
    if (*type == "reasoning") return add_reasoning(item, at);
    return wrong_part(at + ".type",
                      fmt::format("is {}; it must be message, reasoning, function_call or "
                                  "function_call_output",
                                  to_text(*type).substr(0, 64)));
  }

 private:
  Result<void> add_message(const Json& item, const std::string& at) {
    HOCKET_TRY(std::string role, string_member(item, "role", at));
    const auto content = item.find("content");
    if (content == item.end()) return wrong_part(at + ".content", "is missing");
    HOCKET_TRY(const std::string text, text_of(*content, at + ".content"));
    if (role == "assistant") {
      Json& message = assistant();
      message["content"].get_ref<std::string&>() += text;
      return {};
    }
    if (role == "developer") role = "system";
    if (role != "system" && role != "user")
      return wrong_part(at + ".role",
                        fmt::format("is '{}'; it must be system, developer, user or assistant",
                                    role.substr(0, 64)));
    if (role == "system" && out_.size() == 1 && out_[0]["role"] == "system")
      out_[0]["content"].get_ref<std::string&>().append("\n\n").append(text);
    else
      out_.push_back({{"role", role}, {"content", text}});
    open_ = false;
    return {};
  }

  // Adds a tool call. An item that did not become a call is left out: the message after it has its
  // text.
  Result<void> add_call(const Json& item, const std::string& at) {
    if (item.value("status", Json()) == "incomplete") return {};
    HOCKET_TRY(std::string id, string_member(item, "call_id", at));
    HOCKET_TRY(std::string name, string_member(item, "name", at));
    HOCKET_TRY(std::string arguments, string_member(item, "arguments", at));
    names_[id] = name;
    Json& message = assistant();
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    message["tool_calls"].push_back(
        {{"id", std::move(id)},
         {"type", "function"},
         {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
    return {};
  }

  Result<void> add_result(const Json& item, const std::string& at) {
    HOCKET_TRY(std::string id, string_member(item, "call_id", at));
    const auto output = item.find("output");
    if (output == item.end()) return wrong_part(at + ".output", "is missing");
    HOCKET_TRY(std::string text, text_of(*output, at + ".output"));
    Json message = {{"role", "tool"}, {"tool_call_id", id}};
    if (const auto name = names_.find(id); name != names_.end()) message["name"] = name->second;
    message["content"] = std::move(text);
    out_.push_back(std::move(message));
    open_ = false;
    return {};
  }

  // Adds reasoning. Encrypted reasoning of another server (encrypted_content) cannot be read, so it
  // is left out.
  Result<void> add_reasoning(const Json& item, const std::string& at) {
    std::string text;
    for (const char* name : {"content", "summary"}) {
      const auto found = item.find(name);
      if (found == item.end() || found->is_null() || !text.empty()) continue;
      HOCKET_TRY(text, text_of(*found, fmt::format("{}.{}", at, name)));
    }
    if (text.empty()) return {};
    if (open_ && (has_text(out_.back()) || out_.back().contains("tool_calls"))) open_ = false;
    Json& message = assistant();
    Json& reasoning = message["reasoning_content"];
    if (reasoning.is_null()) reasoning = "";
    reasoning.get_ref<std::string&>() += text;
    return {};
  }

  // Returns the assistant's message that the item belongs to.
  Json& assistant() {
    if (!open_) out_.push_back({{"role", "assistant"}, {"content", ""}});
    open_ = true;
    return out_.back();
  }

  Json& out_;
  std::map<std::string, std::string> names_;  // tools by call id; clients can make hashes collide
  bool open_ = false;  // the last message is the assistant's, and more may belong to it
};

}  // namespace

Result<void> add_items(const Json& items, const std::string& at, Json& out) {
  ItemConversation conversation(out);
  for (size_t i = 0; i < items.size(); ++i)
    HOCKET_TRY_VOID(conversation.add(items[i], fmt::format("{}[{}]", at, i)));
  return {};
}

Result<Json> items_of_input(const Json& input, std::string_view id_stem) {
  Json items = Json::array();
  if (input.is_string()) {
    items.push_back({{"type", "message"},
                     {"role", "user"},
                     {"content", Json::array({{{"type", "input_text"}, {"text", input}}})}});
  } else if (input.is_array() && input.size() <= kMaxItems) {
    items = input;
  } else {
    return wrong_part("input",
                      fmt::format("must be a string or a list of up to {} items", kMaxItems));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_object()) continue;  // add_items() refuses it
    if (!items[i].contains("type")) items[i]["type"] = "message";
    if (const auto id = items[i].find("id"); id == items[i].end() || !id->is_string())
      items[i]["id"] = fmt::format("item_{}_{}", id_stem, i);
  }
  return items;
}

}  // namespace hocket
