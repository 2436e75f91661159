#include "server/apis/anthropic/messages_request.h"

#include <utility>

#include "server/apis/anthropic/content_blocks.h"
#include "server/apis/anthropic/messages_api.h"
#include "server/apis/openai/chat_translation.h"

namespace hocket {
namespace {

const FieldNames& anthropic_names() {
  static const FieldNames kNames = {{"stop", "stop_sequences"},
                                    {"user", "metadata.user_id"},
                                    {".function", ""},
                                    {".parameters", ".input_schema"},
                                    {"response_format", "output_config.format"},
                                    {"reasoning_effort", "output_config.effort"},
                                    {"thinking_budget", "thinking.budget_tokens"}};
  return kNames;
}

// Converts one tool. Tools of another type run on the server or have no schema in the request.
Json chat_tool(Fields& fields, const Json& tool, const std::string& at) {
  if (!tool.is_object()) return fields.fail_field(at, at + " must be an object"), Json();
  const auto type = tool.find("type");
  if (type != tool.end() && !type->is_null() && *type != "custom")
    return fields.fail_field(
               at + ".type",
               fmt::format("{}.type is {}; tools that the server runs are not offered, nor those "
                           "whose schema is not in the request",
                           at, to_text(*type).substr(0, 64)),
               "describe it as a tool of your own: name, description, input_schema"),
           Json();
  Json function = Json::object();
  for (const auto& [theirs, ours] : {std::pair{"name", "name"},
                                     {"description", "description"},
                                     {"input_schema", "parameters"},
                                     {"strict", "strict"}})
    if (const auto found = tool.find(theirs); found != tool.end()) function[ours] = *found;
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_anthropic_tools(Fields& fields, Json& chat) {
  const Json* tools = fields.array("tools", kMaxTools);
  if (tools != nullptr && !tools->empty()) {
    Json& out = chat["tools"] = Json::array();
    for (size_t i = 0; i < tools->size() && fields.ok(); ++i)
      out.push_back(chat_tool(fields, (*tools)[i], fmt::format("tools[{}]", i)));
  }
  const Json* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  Fields inner(*choice, "tool_choice");
  std::string type, name;
  bool one_at_a_time = false;
  inner.read("type", type);
  inner.read("name", name);
  if (inner.read("disable_parallel_tool_use", one_at_a_time))
    chat["parallel_tool_calls"] = !one_at_a_time;
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else {
    inner.fail_field("type", "tool_choice.type must be auto, any, tool or none");
  }
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

// Reads `thinking`. If it is absent, the template's default applies.
void read_thinking(Fields& fields, Json& chat) {
  const Json* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  Fields inner(*thinking, "thinking");
  std::string type;
  inner.read("type", type);
  int budget = 0;
  const bool limited = inner.read("budget_tokens", budget, 1, INT32_MAX);
  inner.ignore({"display"});
  const bool on = type == "enabled" || type == "adaptive";
  if (!on && type != "disabled")
    inner.fail_field("type", "thinking.type must be enabled, adaptive or disabled");
  if (auto done = inner.finish(); !done) return fields.fail(std::move(done).error());
  if (limited && on) chat["thinking_budget"] = budget;
  Json& kwargs = chat["chat_template_kwargs"];
  if (kwargs.is_null()) kwargs = Json::object();
  if (kwargs.is_object() && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = on;
}

void read_output_config(Fields& fields, Json& chat) {
  const auto take_format = [&](Fields& from, const char* name) {
    const Json* format = from.object(name);
    if (format == nullptr) return;
    Fields inner(*format, from.name_of(name));
    std::string type;
    inner.read("type", type);
    const Json* schema = inner.object("schema");
    if (type != "json_schema" || schema == nullptr)
      inner.fail_field("type", from.name_of(name) + " must be a json_schema with its schema");
    if (auto done = inner.finish(); !done) return fields.fail(std::move(done).error());
    chat["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "output"}, {"schema", *schema}, {"strict", true}}}};
  };
  take_format(fields, "output_format");
  const Json* config = fields.object("output_config");
  if (config == nullptr) return;
  Fields inner(*config, "output_config");
  take_format(inner, "format");
  std::string effort;
  if (inner.read("effort", effort)) chat["reasoning_effort"] = effort;
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

void read_metadata(Fields& fields, Json& chat) {
  const Json* metadata = fields.object("metadata");
  if (metadata == nullptr) return;
  if (const auto user = metadata->find("user_id"); user != metadata->end()) chat["user"] = *user;
}

// If the last message is an answer that the client began, the model continues it.
void continue_last(Json& chat) {
  const Json& last = chat["messages"].back();
  if (last["role"] != "assistant" || last.contains("tool_calls") ||
      last["content"].get_ref<const std::string&>().empty())
    return;
  chat["continue_final_message"] = true;
  chat["add_generation_prompt"] = false;
}

enum class Purpose : uint8_t { answer, count };

Result<Json> chat_of(const Json& body, Purpose purpose) {
  Fields fields(body);
  Json chat = Json::object();
  std::string model;
  if (fields.read("model", model)) chat["model"] = model;
  const Json* system = fields.get("system");
  const Json* messages = fields.get("messages");
  if (messages == nullptr)
    return fail(error(ErrorCode::invalid_request, "messages is missing").with_param("messages"));
  Json conversation = Json::array();
  HOCKET_TRY_VOID(add_chat_messages(system, *messages, conversation));
  chat["messages"] = std::move(conversation);
  continue_last(chat);
  int limit = 0;
  if (fields.read("max_tokens", limit, 1, INT32_MAX))
    chat["max_tokens"] = limit;
  else if (purpose == Purpose::answer)
    fields.fail_field("max_tokens", "max_tokens is missing: how long the answer may be");
  pass_extensions(fields, chat);
  for (const char* name : {"temperature", "top_p", "top_k", "stream"})
    if (const Json* value = fields.get(name)) chat[name] = *value;
  if (const Json* stops = fields.array("stop_sequences", kMaxStops)) chat["stop"] = *stops;
  read_anthropic_tools(fields, chat);
  read_thinking(fields, chat);
  read_output_config(fields, chat);
  read_metadata(fields, chat);
  for (const char* name : {"mcp_servers", "container"})
    fields.refuse(name, "is not supported: the server runs no tools itself");
  fields.ignore({"context_management", "service_tier", "inference_geo", "cache_control", "speed"});
  HOCKET_TRY_VOID(fields.finish());
  return chat;
}

Result<GenerationRequest> parse(const Json& body, const ServedModel& model, Purpose purpose) {
  HOCKET_TRY(const Json chat, chat_of(body, purpose));
  HOCKET_TRY(GenerationRequest request, parse_translated(chat, model, anthropic_names()));
  request.api = &kMessagesApi;
  return request;
}

}  // namespace

Result<GenerationRequest> parse_messages(const Json& body, const ServedModel& model) {
  return parse(body, model, Purpose::answer);
}

Result<GenerationRequest> parse_count_tokens(const Json& body, const ServedModel& model) {
  return parse(body, model, Purpose::count);
}

}  // namespace hocket
