#include "text/tokens/chat_template.h"

#include <ctime>

#include "core/bounded_json.h"
#include "text/tokens/files.h"
#include "text/tokens/rust.h"

namespace hocket {

namespace {

using Json = nlohmann::ordered_json;

// A client must not choose how deep the writer of JSON recurses.
constexpr int kMaxInputDepth = 100;

bool deeper_than(const Json& value, int depth) {
  if (!value.is_structured()) return false;
  if (depth == 0) return true;
  for (const Json& item : value) {
    if (deeper_than(item, depth - 1)) return true;
  }
  return false;
}

std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::local_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

Result<void> check(const ChatInput& input) {
  const auto bad = [](const char* param, std::string text) {
    return fail(error(ErrorCode::invalid_request, "{}", text).with_param(param));
  };
  if (!input.messages.is_array() || input.messages.empty()) {
    return bad("messages", "messages must be a list of at least one message");
  }
  for (size_t i = 0; i < input.messages.size(); ++i) {
    if (!input.messages[i].is_object()) {
      return bad("messages", fmt::format("messages[{}] must be an object", i));
    }
  }
  if (!input.tools.is_null() && !input.tools.is_array())
    return bad("tools", "tools must be a list");
  if (!input.documents.is_null() && !input.documents.is_array()) {
    return bad("documents", "documents must be a list");
  }
  if (!input.kwargs.is_object()) {
    return bad("chat_template_kwargs", "chat_template_kwargs must be an object");
  }
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (input.kwargs.contains(name)) {
      return bad(
          "chat_template_kwargs",
          fmt::format("chat_template_kwargs cannot set {}: the request has it already", name));
    }
  }
  if (input.add_generation_prompt && input.continue_final_message) {
    return fail(error(ErrorCode::invalid_request,
                      "continue_final_message and add_generation_prompt exclude each other")
                    .with_param("continue_final_message")
                    .with_fix("set add_generation_prompt to false"));
  }
  for (const auto& [name, value] : {std::pair{"messages", &input.messages},
                                    {"tools", &input.tools},
                                    {"documents", &input.documents},
                                    {"chat_template_kwargs", &input.kwargs}}) {
    if (deeper_than(*value, kMaxInputDepth)) {
      return bad(name, fmt::format("{} nest deeper than {} levels", name, kMaxInputDepth));
    }
  }
  return {};
}

Json template_messages(const Json& messages) {
  Json list = Json::array();
  for (const Json& message : messages) {
    Json kept = Json::object();
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) append_field(kept, key, value);
    }
    for (const char* other : {"thinking", "reasoning"}) {
      if (kept.contains("reasoning_content") || !kept.contains(other)) continue;
      Json reasoning = kept[other];
      kept["reasoning_content"] = std::move(reasoning);
    }
    list.push_back(std::move(kept));
  }
  return list;
}

}  // namespace

void ChatTemplate::Free::operator()(HkTemplate* t) const {
  hk_template_free(t);
}

Result<ChatTemplate::Handle> ChatTemplate::compile(std::string_view source,
                                                   const Tokenizer* tokenizer) {
  Json variables = Json::object();
  if (tokenizer) {
    for (const auto& [name, text] : tokenizer->named_tokens()) variables[name] = text;
  }
  const std::string json = variables.dump();
  const HkTokenizer* guard = tokenizer ? tokenizer->handle() : nullptr;
  HkTemplate* handle = nullptr;
  if (hk_template_new(source.data(), source.size(), json.data(), json.size(), guard, &handle)) {
    return fail(ErrorCode::bad_template, "{}", rust::last_error());
  }
  return Handle(handle);
}

Result<ChatTemplate> ChatTemplate::from_source(std::string_view source,
                                               const Tokenizer* tokenizer) {
  ChatTemplate t;
  HOCKET_TRY(t.default_, compile(source, tokenizer));
  t.source_ = source;
  return t;
}

Result<ChatTemplate> ChatTemplate::from_file(const std::filesystem::path& file,
                                             const Tokenizer& tokenizer) {
  HOCKET_TRY(const std::string source, read_file(file, ErrorCode::bad_template));
  auto t = from_source(source, &tokenizer);
  if (!t) t.error().message = file.string() + ": " + t.error().message;
  return t;
}

Result<std::optional<ChatTemplate>> ChatTemplate::load(const std::filesystem::path& model_dir,
                                                       const Tokenizer& tokenizer) {
  std::error_code ignored;
  if (const auto file = model_dir / "chat_template.jinja"; std::filesystem::exists(file, ignored)) {
    return from_file(file, tokenizer);
  }
  constexpr std::string_view kFile = "tokenizer_config.json";
  if (!has_model_file(model_dir, kFile)) return std::nullopt;
  HOCKET_TRY(const std::string text, read_model_file(model_dir, kFile, ErrorCode::bad_template));
  const auto config = parse_bounded_json<nlohmann::json>(text);
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  auto t = from_config(config["chat_template"], tokenizer);
  if (!t) t.error().message = (model_dir / kFile).string() + ": " + t.error().message;
  return t;
}

Result<std::optional<ChatTemplate>> ChatTemplate::from_config(const nlohmann::json& value,
                                                              const Tokenizer& tokenizer) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return from_source(value.get<std::string>(), &tokenizer);
  ChatTemplate t;
  for (const auto& entry : value.is_array() ? value : nlohmann::json::array()) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name"), source = entry.find("template");
    if (name == entry.end() || source == entry.end() || !source->is_string()) continue;
    const bool is_default = *name == "default" || value.size() == 1;
    if (!is_default && *name != "tool_use") continue;
    const auto text = source->get<std::string>();
    HOCKET_TRY((is_default ? t.default_ : t.tool_use_), compile(text, &tokenizer));
    t.source_ += text;
  }
  if (!t.default_) {
    return fail(error(ErrorCode::bad_template,
                      "chat_template is neither a text nor a list with an entry named default")
                    .with_fix("--chat-template FILE"));
  }
  return t;
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input) const {
  HOCKET_TRY_VOID(check(input));
  Json context = input.kwargs;
  context["messages"] = template_messages(input.messages);
  context["tools"] = input.tools;
  context["documents"] = input.documents;
  context["add_generation_prompt"] = input.add_generation_prompt;
  std::string json;
  try {
    json = context.dump();
  } catch (const Json::exception&) {
    return fail(error(ErrorCode::invalid_request, "messages hold text that is not valid UTF-8")
                    .with_param("messages"));
  }
  const HkRender how{.local_seconds = input.now.value_or(local_now()).time_since_epoch().count(),
                     .continue_final = input.continue_final_message};
  const bool with_tools = tool_use_ && !input.tools.is_null();
  rust::Buffer text;
  uint32_t mark = 0;
  const int status = hk_template_render((with_tools ? tool_use_ : default_).get(), json.data(),
                                        json.size(), &how, text.out(), &mark);
  if (status != 0) return fail(ErrorCode::template_failed, "{}", rust::last_error());
  return RenderedPrompt{std::string(text.text()), static_cast<char32_t>(mark)};
}

}  // namespace hocket
