#include "server/apis/responses/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "server/apis/openai/chat_translation.h"
#include "server/apis/responses/response_items.h"
#include "server/apis/responses/responses_api.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr std::string_view kIdPrefix = "resp_";

const FieldNames& responses_names() {
  static const FieldNames kNames = {{"messages", "input"},
                                    {"max_tokens", "max_output_tokens"},
                                    {".function", ""},
                                    {"response_format", "text.format"},
                                    {"reasoning_effort", "reasoning.effort"}};
  return kNames;
}

// Reads tools: their members are flat in this API, and nested below "function" in the chat API.
void read_flat_tools(Fields& fields, Json& chat) {
  const Json* tools = fields.array("tools", kMaxTools);
  if (tools == nullptr || tools->empty()) return;
  Json& out = chat["tools"] = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string at = fmt::format("tools[{}]", i);
    if (!tool.is_object()) return fields.fail_field(at, at + " must be an object");
    const auto type = tool.find("type");
    if (type == tool.end() || *type != "function")
      return fields.fail_field(
          at + ".type",
          fmt::format("{}.type must be \"function\", not {}: the server runs no tools itself", at,
                      type == tool.end() ? "missing" : to_text(*type).substr(0, 64)),
          "leave it out, or describe it as a function that you run");
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"})
      if (const auto found = tool.find(name); found != tool.end() && !found->is_null())
        function[name] = *found;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

// Reads {"type": "allowed_tools", "mode", "tools": [{"type": "function", "name"}]}.
void read_allowed(Fields& fields, const Json& choice, Json& chat) {
  const auto allowed = choice.find("tools");
  const auto mode = choice.find("mode");
  if (allowed == choice.end() || !allowed->is_array() || mode == choice.end())
    return fields.fail_field("tool_choice", "tool_choice needs its mode and tools");
  if (allowed->size() > kMaxTools)
    return fields.fail_field("tool_choice", fmt::format("tool_choice may name {} tools, not {}",
                                                        kMaxTools, allowed->size()));
  Json tools = Json::array();
  for (const Json& one : *allowed)
    if (const auto name = one.is_object() ? one.find("name") : one.end(); name != one.end())
      tools.push_back({{"type", "function"}, {"function", {{"name", *name}}}});
  chat["tool_choice"] = {{"type", "allowed_tools"},
                         {"allowed_tools", {{"mode", *mode}, {"tools", std::move(tools)}}}};
}

void read_tool_choice(Fields& fields, Json& chat) {
  const Json* choice = fields.get("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat["tool_choice"] = *choice;
    return;
  }
  const auto type = choice->is_object() ? choice->find("type") : choice->end();
  if (!choice->is_object() || type == choice->end())
    return fields.fail_field("tool_choice", "tool_choice must be a string or an object with type");
  if (*type == "allowed_tools") return read_allowed(fields, *choice, chat);
  if (*type != "function")
    return fields.fail_field("tool_choice", fmt::format("tool_choice.type {} is not offered",
                                                        to_text(*type).substr(0, 64)));
  chat["tool_choice"] = {{"type", "function"},
                         {"function", {{"name", choice->value("name", Json())}}}};
}

void read_text(Fields& fields, Json& chat) {
  const Json* text = fields.object("text");
  if (text == nullptr) return;
  Fields inner(*text, "text");
  inner.ignore({"verbosity"});
  if (const Json* format = inner.object("format")) {
    const Json type = format->value("type", Json());
    if (type == "json_schema") {
      Json schema = *format;
      schema.erase("type");
      chat["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
    } else if (type != "text") {
      chat["response_format"] = *format;
    }
  }
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

void read_reasoning(Fields& fields, Json& chat) {
  const Json* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, "reasoning");
  std::string effort;
  if (inner.read("effort", effort)) chat["reasoning_effort"] = effort;
  inner.ignore({"summary", "generate_summary", "context"});  // reasoning is never summarized
  if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
}

void read_include(Fields& fields) {
  const Json* include = fields.array("include", 16);
  if (include == nullptr) return;
  for (const Json& one : *include) {
    if (one == "reasoning.encrypted_content") continue;  // reasoning is sent in plain text
    if (one == "message.output_text.logprobs")
      return fields.fail_field("include", "include: this API sends no log-probabilities",
                               "ask /v1/chat/completions, with logprobs");
    return fields.fail_field("include", fmt::format("include: there is no {} here: the server runs "
                                                    "no tools itself",
                                                    to_text(one).substr(0, 64)));
  }
}

void refuse_what_is_not_offered(Fields& fields) {
  fields.refuse("conversation", "is not supported", "use previous_response_id, or send all items");
  fields.refuse("prompt", "is not supported: no prompts are stored", "send them as input");
  fields.refuse("context_management", "is not supported: the server edits no prompts");
  fields.refuse("moderation", "is not supported");
  if (int top = 0; fields.read("top_logprobs", top, 0, 20) && top > 0)
    fields.fail_field("top_logprobs", "top_logprobs: this API sends no log-probabilities",
                      "ask /v1/chat/completions, with logprobs");
  if (std::string how; fields.read("truncation", how) && how != "disabled")
    fields.fail_field("truncation", "truncation must be \"disabled\": prompts are never cut");
  if (const Json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options");
    inner.ignore({"include_obfuscation"});
    if (auto done = inner.finish(); !done) fields.fail(std::move(done).error());
  }
  fields.ignore({"metadata", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "prompt_cache_options", "max_tool_calls", "verbosity"});
}

// Returns the chat body without its messages.
Result<Json> settings_of(const Json& body, ResponsesRequest& responses) {
  Fields fields(body);
  Json chat = Json::object();
  fields.ignore({"input", "instructions", "previous_response_id"});
  int limit = 0;
  if (fields.read("max_output_tokens", limit, 1, INT32_MAX)) chat["max_tokens"] = limit;
  pass_extensions(fields, chat);
  for (const char* name :
       {"model", "temperature", "top_p", "top_k", "stop", "stream", "user", "parallel_tool_calls"})
    if (const Json* value = fields.get(name)) chat[name] = *value;
  read_flat_tools(fields, chat);
  read_tool_choice(fields, chat);
  read_text(fields, chat);
  read_reasoning(fields, chat);
  read_include(fields);
  refuse_what_is_not_offered(fields);
  responses.store = true;
  fields.read("store", responses.store);
  fields.read("background", responses.background);
  if (responses.background && !responses.store)
    fields.fail_field("background",
                      "background needs \"store\": true: no connection waits for the answer");
  if (responses.background && chat.value("stream", Json()) == true)
    fields.fail_field("background", "background and stream exclude each other here",
                      "ask for the answer with GET, or leave background out");
  HOCKET_TRY_VOID(fields.finish());
  return chat;
}

ResponseStore& store_of(const RequestContext& context) {
  return static_cast<ResponseStore&>(*context.store);
}

// Returns the digits of an id: without the rank, which may change before the answer begins.
std::string_view id_stem(std::string_view id) {
  return id.substr(id.rfind('_') + 1);
}

// Returns the messages: instructions, earlier turns, and the input.
Result<Json> messages_of(const Json& body, const RequestContext& context,
                         ResponsesRequest& responses) {
  Json messages = Json::array();
  Fields fields(body);
  std::string instructions, previous;
  if (fields.read("instructions", instructions))
    messages.push_back({{"role", "system"}, {"content", instructions}});
  if (fields.read("previous_response_id", previous)) {
    HOCKET_TRY(const auto record, find_response(context, previous, "previous_response_id"));
    if (record->output == nullptr)
      return fail(error(ErrorCode::invalid_request, "the answer '{}' has not ended, or has failed",
                        previous)
                      .with_param("previous_response_id"));
    responses.continues = true;
    responses.turns = record->turns;
    responses.turns.push_back(record->output);
  }
  const Json* input = fields.get("input");
  if (!fields.ok()) return fail(fields.finish().error());
  if (input == nullptr && previous.empty())
    return fail(error(ErrorCode::invalid_request, "input is missing").with_param("input"));
  Json before = Json::array();
  for (const auto& turn : responses.turns) {
    if (context.held != nullptr)
      HOCKET_TRY_VOID(context.held->grow(kConversationCopies * json_shape(turn->str()).tree_bytes));
    HOCKET_TRY(const Json items, parse_json(turn->str()));
    before.insert(before.end(), items.begin(), items.end());
  }
  HOCKET_TRY_VOID(add_items(before, "previous_response_id", messages));
  if (input == nullptr) return messages;
  HOCKET_TRY(const Json items, items_of_input(*input, id_stem(responses.id)));
  HOCKET_TRY_VOID(add_items(items, "input", messages));
  responses.turns.push_back(store_of(context).keep(to_text(items)));
  return messages;
}

// Returns the members that repeat the request. An answer has them up to three times, so they are
// written as text once.
std::string repeated(const Json& body, const GenerationRequest& request,
                     const ResponsesRequest& responses) {
  const auto field_or = [&](const char* name, const Json& otherwise = nullptr) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? otherwise : *found;
  };
  const SamplingParams& sampling = request.prompts.front().sampling;
  Json text = field_or("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  std::string members =
      to_text({{"background", responses.background},
               {"instructions", field_or("instructions")},
               {"max_output_tokens", field_or("max_output_tokens")},
               {"max_tool_calls", field_or("max_tool_calls")},
               {"metadata", field_or("metadata", Json::object())},
               {"parallel_tool_calls", field_or("parallel_tool_calls", true)},
               {"previous_response_id", field_or("previous_response_id")},
               {"reasoning", field_or("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
               {"service_tier", "default"},
               {"store", responses.store},
               {"temperature", sampling.temperature},
               {"text", std::move(text)},
               {"tool_choice", field_or("tool_choice", "auto")},
               {"tools", field_or("tools", Json::array())},
               {"top_logprobs", 0},
               {"top_p", sampling.top_p},
               {"truncation", "disabled"},
               {"user", field_or("user")}});
  members.front() = ',';
  members.pop_back();
  return members;
}

}  // namespace

std::string new_response_id(int rank) {
  const std::string of_rank = rank < 0 ? "" : fmt::format("{:x}_", rank);
  return fmt::format("{}{}{:016x}{:016x}", kIdPrefix, of_rank, fresh_seed(), fresh_seed());
}

std::string response_id_at(std::string_view id, int rank) {
  return fmt::format("{}{:x}_{}", kIdPrefix, rank, id_stem(id));
}

int rank_of_response(std::string_view id) {
  if (!id.starts_with(kIdPrefix)) return -1;
  id.remove_prefix(kIdPrefix.size());
  const size_t end = id.find('_');
  int rank = -1;
  if (end == id.npos) return -1;
  const auto read = std::from_chars(id.data(), id.data() + end, rank, 16);
  return read.ec == std::errc() && read.ptr == id.data() + end ? rank : -1;
}

Result<ResponseStore::RecordPtr> find_response(const RequestContext& context, const std::string& id,
                                               std::string_view param) {
  if (auto record = store_of(context).find(id, context.who)) return record;
  return fail(error(ErrorCode::not_found, "there is no answer '{}'", id.substr(0, 128))
                  .with_fix(store_of(context).keeps()
                                ? "answers are kept for a while only, and not with \"store\": false"
                                : "the server keeps no answers: see --response-store-mib")
                  .with_param(std::string(param)));
}

Result<GenerationRequest> parse_responses(const Json& body, const ServedModel& model,
                                          const RequestContext& context) {
  auto responses = std::make_shared<ResponsesRequest>();
  responses->id =
      context.answer_id.empty() ? new_response_id(context.rank) : std::string(context.answer_id);
  responses->who = context.who;
  responses->responses = &store_of(context);
  HOCKET_TRY(Json chat, settings_of(body, *responses));
  if (responses->background && !store_of(context).keeps())
    return fail(error(ErrorCode::invalid_request,
                      "the server keeps no answers, so none can be "
                      "made in the background")
                    .with_fix("see --response-store-mib")
                    .with_param("background"));
  responses->store &= store_of(context).keeps();
  HOCKET_TRY(chat["messages"], messages_of(body, context, *responses));
  HOCKET_TRY(GenerationRequest request, parse_translated(chat, model, responses_names()));
  request.api = &kResponsesApi;
  request.answer_id = responses->id;
  responses->repeated = repeated(body, request, *responses);
  request.stays_on_rank = responses->continues;
  request.api_fields = std::move(responses);
  return request;
}

}  // namespace hocket
