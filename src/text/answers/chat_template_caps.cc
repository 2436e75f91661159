#include "text/answers/chat_template_caps.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/bounded_json.h"
#include "text/answers/answer_parser.h"
#include "text/answers/call_reader.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

// No template writes these words by itself.
constexpr const char *kProbeTool = "probe_tool_name", *kProbeKey = "probe_key",
                     *kProbeValue = "probe_value", *kProbeReasoning = "probe_thought",
                     *kShortId = "Abcdefgh1", *kLongId = "call_0123456789abcdefghijklmn";

Json probe_tools() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kProbeTool},
          {"description", "What it does."},
          {"parameters",
           {{"type", "object"}, {"properties", {{kProbeKey, {{"type", "string"}}}}}}}}}}});
}

ChatInput conversation(Json arguments, const char* id) {
  const Json call = {{"id", id},
                     {"type", "function"},
                     {"function", {{"name", kProbeTool}, {"arguments", std::move(arguments)}}}};
  ChatInput chat;
  chat.messages = Json::array(
      {{{"role", "user"}, {"content", "Go on."}},
       {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
       {{"role", "tool"}, {"name", kProbeTool}, {"tool_call_id", id}, {"content", "Done."}}});
  chat.tools = probe_tools();
  return chat;
}

std::string rendered(const ChatTemplate& chat_template, const ChatInput& chat) {
  const auto prompt = chat_template.render(chat);
  return prompt ? prompt->text() : std::string();
}

bool shows_reasoning(const ChatTemplate& chat_template, const char* field) {
  ChatInput chat = conversation({{kProbeKey, kProbeValue}}, kLongId);
  chat.messages[1][field] = kProbeReasoning;
  return rendered(chat_template, chat).contains(kProbeReasoning);
}

// Returns true if the id of a call is all that shows which function it calls.
bool shows_only_ids(const ChatTemplate& chat_template) {
  ChatInput chat = conversation({{kProbeKey, kProbeValue}}, kLongId);
  chat.tools = Json::array();
  chat.messages[2].erase("name");
  const std::string prompt = rendered(chat_template, chat);
  return prompt.contains(kLongId) && prompt.contains(kProbeValue) && !prompt.contains(kProbeTool);
}

// Returns true if the prompt has the arguments as JSON, not escaped and without Python's quotes.
bool shows_arguments(std::string_view prompt) {
  for (const char* gap : {"\": \"", "\":\""})
    if (prompt.contains(std::string("{\"") + kProbeKey + gap + kProbeValue + "\"}")) return true;
  return false;
}

// Returns true if the prompt has the arguments in a form of the family's own, such as XML, and not
// only as Python prints an object.
bool writes_out_arguments(std::string_view prompt) {
  return prompt.contains(kProbeValue) &&
         !prompt.contains(std::string("{'") + kProbeKey + "': '" + kProbeValue + "'}");
}

bool is_short_id(std::string_view id) {
  return id.size() == 9 && std::ranges::all_of(id, [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// Hashes with FNV-1a, so that the id is the same on every rank and in every run.
std::string short_id(std::string_view id) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : id) hash = (hash ^ c) * 0x100000001b3u;
  return call_id(ToolFormat::mistral, hash, 0);
}

void shorten(Json& holder, const char* name) {
  const auto id = holder.find(name);
  if (id == holder.end() || !id->is_string()) return;
  if (const auto text = id->get<std::string>(); !is_short_id(text)) *id = short_id(text);
}

void fit_call(Json& call, const ChatTemplateCaps& caps) {
  if (!call.is_object()) return;
  if (caps.short_ids) shorten(call, "id");
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object()) return;
  const auto arguments = function->find("arguments");
  if (arguments == function->end()) return;
  if (caps.arguments_as_text) {
    if (!arguments->is_string())
      *arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (arguments->is_string()) {
    auto object = parse_bounded_json(arguments->get_ref<const std::string&>());
    if (object.is_object()) *arguments = std::move(object);
  }
}

// Gives calls ids of the form functions.f:0, counted through the conversation, and their answers
// the same.
class CallIds {
 public:
  void name(Json& call) {
    const int number = next_++;
    if (!call.is_object()) return;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) return;
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) return;
    // Many answers may name one call, so a long name would make much of a short message.
    if (name->get_ref<const std::string&>().size() > kMaxCallNameBytes) return;
    const std::string stem = "functions." + name->get<std::string>() + ":";
    Json& id = call["id"];
    const std::string given = id.is_string() ? id.get<std::string>() : std::string();
    const bool fits = given.size() > stem.size() && given.starts_with(stem) &&
                      given.find_first_not_of("0123456789", stem.size()) == given.npos;
    const std::string fitting = fits ? given : stem + std::to_string(number);
    if (!given.empty()) fitting_[given] = fitting;
    id = fitting;
  }

  void answer(Json& message) const {
    const auto id = message.find("tool_call_id");
    if (id == message.end() || !id->is_string()) return;
    const auto found = fitting_.find(id->get_ref<const std::string&>());
    if (found != fitting_.end()) *id = found->second;
  }

 private:
  int next_ = 0;
  std::map<std::string, std::string, std::less<>> fitting_;  // by the id as given, the newest
};

// Moves reasoning into the field `thinking`. Beside a call the template takes reasoning or text,
// and shows either as reasoning.
void fit_reasoning(Json& message) {
  for (const char* field : {"reasoning_content", "reasoning"}) {
    const auto reasoning = message.find(field);
    if (message.contains("thinking") || reasoning == message.end() || !reasoning->is_string())
      continue;
    Json moved = std::move(*reasoning);
    message["thinking"] = std::move(moved);
  }
  const auto thinking = message.find("thinking"), content = message.find("content");
  if (!message.contains("tool_calls") || thinking == message.end() || content == message.end())
    return;
  if (!thinking->is_string() || !content->is_string()) return;
  auto& words = content->get_ref<std::string&>();
  auto& reasoning = thinking->get_ref<std::string&>();
  if (words.empty() || reasoning.empty()) return;
  reasoning += "\n" + words;
  words.clear();
}

}  // namespace

ChatTemplateCaps caps_of(const ChatTemplate& chat_template) {
  ChatTemplateCaps caps;
  ChatInput question;
  question.messages = Json::array({{{"role", "user"}, {"content", "Go on."}}});
  question.tools = probe_tools();
  caps.shows_tools = rendered(chat_template, question).contains(kProbeTool);

  const auto with_effort = [&](const char* effort) {
    question.kwargs["reasoning_effort"] = effort;
    return rendered(chat_template, question);
  };
  caps.uses_effort = with_effort("low") != with_effort("high");

  caps.ids_name_functions = shows_only_ids(chat_template);
  caps.reads_thinking = shows_reasoning(chat_template, "thinking") &&
                        !shows_reasoning(chat_template, "reasoning_content");

  const Json object = {{kProbeKey, kProbeValue}};
  const Json text = std::string("{\"") + kProbeKey + "\": \"" + kProbeValue + "\"}";
  for (const char* id : {kLongId, kShortId}) {
    const std::string prompt = rendered(chat_template, conversation(object, id));
    const bool as_object = shows_arguments(prompt) || writes_out_arguments(prompt);
    const bool as_text =
        !as_object && shows_arguments(rendered(chat_template, conversation(text, id)));
    if (!as_object && !as_text) continue;
    caps.arguments_as_text = as_text;
    caps.short_ids = id == kShortId;
    break;
  }
  return caps;
}

ArgumentTexts argument_texts(const Json& messages) {
  ArgumentTexts sum;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (const Json& call : *calls) {
      if (!call.is_object()) continue;
      const auto function = call.find("function");
      if (function == call.end() || !function->is_object()) continue;
      const auto arguments = function->find("arguments");
      if (arguments == function->end() || !arguments->is_string()) continue;
      const auto& text = arguments->get_ref<const std::string&>();
      sum.num_bytes += std::ssize(text);
      sum.tree_bytes += json_shape(text).tree_bytes;
    }
  }
  return sum;
}

void fit_messages(ChatInput& chat, const ChatTemplateCaps& caps) {
  CallIds ids;
  for (Json& message : chat.messages) {
    if (!message.is_object()) continue;
    if (caps.short_ids) shorten(message, "tool_call_id");
    if (caps.ids_name_functions) ids.answer(message);
    if (caps.reads_thinking) fit_reasoning(message);
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      fit_call(call, caps);
      if (caps.ids_name_functions) ids.name(call);
    }
  }
}

}  // namespace hocket
