#include "server/apis/openai/openai_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/default_sampling.h"
#include "server/apis/openai/openai_api.h"
#include "server/generation/sampling_fields.h"
#include "server/generation/structure_fields.h"
#include "server/generation/tool_fields.h"
#include "text/answers/chat_template_caps.h"

namespace hocket {
namespace {

bool read_content(Fields& fields, const std::string& at, const Json& content, Json& out) {
  if (content.is_null() || content.is_string()) return out = content, true;
  const auto wrong = [&](const std::string& where, std::string message) {
    fields.fail(Error{ErrorCode::invalid_request, std::move(message), {}, where});
    return false;
  };
  if (!content.is_array())
    return wrong(
        at, fmt::format("{} must be a string or a list of parts, not {}", at, type_name(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string where = fmt::format("{}[{}]", at, i);
    if (!part.is_object()) return wrong(where, fmt::format("{} must be an object", where));
    const auto type = part.find("type");
    if (type == part.end() || *type != "text")
      return wrong(
          where + ".type",
          fmt::format("{}.type must be \"text\", not {}: this model reads text only", where,
                      type == part.end() ? "missing" : to_text(*type).substr(0, 64)));
    const auto words = part.find("text");
    if (words == part.end() || !words->is_string())
      return wrong(where + ".text", fmt::format("{}.text must be a string", where));
    text += words->get_ref<const std::string&>();
  }
  out = std::move(text);
  return true;
}

bool read_message(Fields& fields, const std::string& at, const Json& message, Json& out) {
  const auto wrong = [&](const std::string& where, std::string text) {
    fields.fail(Error{ErrorCode::invalid_request, std::move(text), {}, where});
    return false;
  };
  if (!message.is_object()) return wrong(at, fmt::format("{} must be an object", at));
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    return wrong(at + ".role", fmt::format("{}.role must be a string", at));
  static constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                             "assistant", "tool",      "function"};
  if (std::ranges::find(kRoles, role->get_ref<const std::string&>()) == kRoles.end())
    return wrong(at + ".role",
                 fmt::format("{}.role is {}; it must be system, developer, user, assistant or tool",
                             at, to_text(*role).substr(0, 64)));
  out = message;
  if (*role == "developer") out["role"] = "system";
  const auto content = message.find("content");
  const bool may_lack = *role == "assistant";
  if (content == message.end() || content->is_null()) {
    if (may_lack) return true;
    return wrong(at + ".content", fmt::format("{}.content is missing", at));
  }
  return read_content(fields, at + ".content", *content, out["content"]);
}

void read_limit(Fields& fields, Prompt& prompt, int low) {
  int limit = 0;
  if (fields.read("max_tokens", limit, low, INT32_MAX)) prompt.max_tokens = limit;
  if (fields.read("max_completion_tokens", limit, low, INT32_MAX)) prompt.max_tokens = limit;
  fields.read("min_tokens", prompt.sampling.min_new_tokens, 0, INT32_MAX);
  fields.refuse("max_new_tokens", "is called max_tokens here");
}

void read_stream(Fields& fields, GenerationRequest& request) {
  fields.read("stream", request.stream);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!request.stream)
    return fields.fail_field("stream_options", "stream_options needs \"stream\": true");
  Fields inner(*options, "stream_options");
  inner.read("include_usage", request.include_usage);
  inner.read("continuous_usage_stats", request.continuous_usage);
  inner.ignore({"include_obfuscation"});
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

void refuse_media(Fields& fields) {
  fields.refuse("audio", "is not supported: this model writes text only");
  fields.refuse("web_search_options", "is not supported");
  if (const Json* kinds = fields.array("modalities", 8); kinds != nullptr && *kinds != Json{"text"})
    fields.fail_field("modalities", "modalities must be [\"text\"]: this model writes text only");
}

// Reads the fields that both APIs have. An answer has at least `min_tokens`.
void read_common(Fields& fields, const ServedModel& model, GenerationRequest& request,
                 Prompt& prompt, int min_tokens) {
  std::string name;
  fields.read("model", name);  // the only model answers, whatever the name
  prompt.sampling = default_sampling(model.info->generation_defaults);
  read_sampling(fields, model, request, prompt);
  read_limit(fields, prompt, min_tokens);
  read_rid(fields, prompt.rid);
  read_envelope(fields, request);
  read_stream(fields, request);
  read_response_format(fields, prompt.sampling);
  fields.read("n", prompt.n, 1, kMaxChoices);
  fields.read("add_special_tokens", request.add_special_tokens);
}

// Reads `prediction`: a text, or parts of one.
void read_prediction(Fields& fields, GenerationRequest& request) {
  const Json* prediction = fields.object("prediction");
  if (prediction == nullptr) return;
  Fields inner(*prediction, "prediction");
  std::string type = "content";
  if (inner.read("type", type) && type != "content")
    inner.fail_field("type", "prediction.type must be \"content\"");
  Json text;
  if (const Json* content = inner.get("content"); content == nullptr)
    inner.fail_field("content", "prediction.content is missing");
  else if (read_content(inner, "prediction.content", *content, text))
    request.prediction = text.get<std::string>();
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

// Reads `prompt`: a text, a list of texts, a list of ids, or a list of lists of ids.
void read_prompts(Fields& fields, const ServedModel& model, const Prompt& like,
                  GenerationRequest& request) {
  const Json* prompt = fields.get("prompt");
  if (prompt == nullptr) return fields.fail_field("prompt", "prompt is missing");
  const auto add = [&](const Json& one) {
    Prompt& added = request.prompts.emplace_back(like);
    if (one.is_string()) {
      added.input = one.get<std::string>();
    } else {
      read_ids(fields, "prompt", one, model, added.input.emplace<std::vector<TokenId>>());
    }
  };
  if (prompt->is_string()) return add(*prompt);
  if (!prompt->is_array() || prompt->empty())
    return fields.fail_field(
        "prompt",
        fmt::format("prompt must be a text, a list of texts, or a list of token ids, not {}",
                    prompt->is_array() ? "an empty list" : type_name(*prompt)));
  if (prompt->front().is_number()) return add(*prompt);
  request.batch = true;
  if (prompt->size() > kMaxPrompts)
    return fields.fail_field(
        "prompt", fmt::format("prompt may hold {} prompts, not {}", kMaxPrompts, prompt->size()));
  for (const Json& one : *prompt) {
    if (!one.is_string() && !one.is_array())
      return fields.fail_field("prompt",
                               fmt::format("prompt must hold texts or lists of token ids, "
                                           "not {}",
                                           type_name(one)));
    add(one);
  }
}

}  // namespace

void read_messages(Fields& fields, Json& out) {
  out = Json::array();
  const Json* messages = fields.array("messages", kMaxMessages);
  if (!fields.ok()) return;
  if (messages == nullptr || messages->empty())
    return fields.fail_field("messages", "messages must hold at least one message");
  for (size_t i = 0; i < messages->size(); ++i) {
    Json message;
    if (!read_message(fields, fmt::format("messages[{}]", i), (*messages)[i], message)) return;
    out.push_back(std::move(message));
  }
  if (const int64_t bytes = argument_texts(out).num_bytes; bytes > kMaxArgumentsBytes)
    fields.fail_field("messages",
                      fmt::format("messages holds {} bytes of arguments of tool calls, at most {} "
                                  "are taken",
                                  bytes, kMaxArgumentsBytes),
                      "leave out the oldest tool calls");
}

void read_conversation(Fields& fields, ChatInput& chat) {
  read_messages(fields, chat.messages);
  fields.read("add_generation_prompt", chat.add_generation_prompt);
  if (fields.read("continue_final_message", chat.continue_final_message) &&
      chat.continue_final_message)
    chat.add_generation_prompt = false;
  if (const Json* documents = fields.array("documents", kMaxMessages)) chat.documents = *documents;
  if (const Json* kwargs = fields.object("chat_template_kwargs")) {
    chat.kwargs = *kwargs;
    for (const char* name :
         {"messages", "documents", "add_generation_prompt", "continue_final_message"})
      if (chat.kwargs.contains(name))
        fields.fail_field("chat_template_kwargs",
                          fmt::format("chat_template_kwargs.{} is a field of its own", name),
                          fmt::format("give {} beside chat_template_kwargs", name));
    if (const auto tools = chat.kwargs.find("tools"); tools != chat.kwargs.end()) {
      chat.tools = *tools;
      chat.kwargs.erase("tools");
    }
  }
  fields.refuse("chat_template", "is not taken from requests", "start with --chat-template FILE");
}

Result<GenerationRequest> parse_chat(const Json& body, const ServedModel& model) {
  GenerationRequest request;
  request.api = &kChatApi;
  Fields fields(body);
  Prompt prompt;
  read_common(fields, model, request, prompt, 1);
  ChatInput& chat = prompt.input.emplace<ChatInput>();
  read_conversation(fields, chat);
  read_tools(fields, model, request.reading, chat);
  read_reasoning(fields, model, request.reading, chat);
  read_prediction(fields, request);
  bool logprobs = false;
  int top = 0;
  fields.read("logprobs", logprobs);
  if (fields.read("top_logprobs", top, 0, kMaxTopLogprobs) && top > 0 && !logprobs)
    fields.fail_field("top_logprobs", "top_logprobs needs \"logprobs\": true");
  if (logprobs) prompt.sampling.num_top_logprobs = top;
  fields.ignore({"verbosity"});
  refuse_media(fields);
  request.prompts.push_back(std::move(prompt));
  return fields.finish_with(std::move(request));
}

Result<GenerationRequest> parse_completions(const Json& body, const ServedModel& model) {
  GenerationRequest request;
  request.api = &kCompletionsApi;
  Fields fields(body);
  Prompt prompt;
  read_common(fields, model, request, prompt, 0);
  fields.read("echo", request.echo);
  if (fields.read("logprobs", prompt.sampling.num_top_logprobs, 0, kMaxTopLogprobs) && request.echo)
    prompt.sampling.prompt_logprobs_from = 0;
  if (std::string suffix; fields.read("suffix", suffix) && !suffix.empty())
    fields.fail_field("suffix", "suffix is not supported: this model writes forwards only");
  read_prompts(fields, model, prompt, request);
  HOCKET_TRY_VOID(fields.finish());
  if (const size_t all = request.prompts.size() * static_cast<size_t>(prompt.n);
      all > static_cast<size_t>(kMaxPrompts))
    return fail(error(ErrorCode::invalid_request,
                      "{} prompts times n = {} are {} answers; {} are allowed",
                      request.prompts.size(), prompt.n, all, kMaxPrompts)
                    .with_param("n"));
  return request;
}

}  // namespace hocket
