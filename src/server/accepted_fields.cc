#include "server/accepted_fields.h"

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/apis/anthropic/messages_request.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/responses/responses_request.h"
#include "server/apis/sglang/generate_request.h"
#include "server/disaggregation_fields.h"
#include "server/http/field_recorder.h"
#include "server/observe/observer.h"
#include "server/ranks/scale_ranks.h"
#include "server/reports/expert_distribution.h"
#include "server/reports/profile.h"

namespace hocket {
namespace {

struct BodyParser {
  const char* path;
  std::vector<const char*> examples;
  // Reads a body. Errors do not matter here: a parser continues after a wrong field.
  std::function<void(const Json&)> parse;
};

const char* const kChat = R"({
  "model": "tiny", "max_tokens": 4, "temperature": 0, "stop": ["zz"], "stop_token_ids": [5],
  "logit_bias": {"16": 1}, "chat_template_kwargs": {"enable_thinking": false},
  "stream": true, "stream_options": {"include_usage": true},
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 7 + 5?"}]}]})";

const char* const kChatTools = R"({
  "max_tokens": 4, "temperature": 0, "parallel_tool_calls": false,
  "messages": [
    {"role": "user", "content": "What is 7 + 5?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 7}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "12"},
    {"role": "user", "content": "And 2 + 2?"}],
  "tools": [{"type": "function", "function": {
    "name": "add", "description": "Adds.", "strict": true, "parameters": {
      "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
  "tool_choice": {"type": "allowed_tools", "allowed_tools": {
    "mode": "auto", "tools": [{"type": "function", "function": {"name": "add"}}]}}})";

const char* const kChatSchema = R"({
  "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "A cat?"}],
  "response_format": {"type": "json_schema", "json_schema": {
    "name": "animal", "strict": true, "schema": {
      "type": "object", "$defs": {"n": {"type": "string", "pattern": "[a-z]+"}},
      "properties": {"name": {"$ref": "#/$defs/n"}, "legs": {"enum": [2, 4]},
                     "of": {"anyOf": [{"type": "null"}]}},
      "required": ["name"]}}}})";

const char* const kStructuralTag = R"({
  "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "A cat?"}],
  "structural_tag": {"type": "structural_tag", "triggers": ["<f="], "structures": [
    {"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"}]}})";

const char* const kResponses = R"({
  "max_output_tokens": 4, "temperature": 0, "instructions": "Be brief.", "metadata": {"a": "b"},
  "input": [
    {"type": "message", "role": "user",
     "content": [{"type": "input_text", "text": "What is 7 + 5?"}]},
    {"type": "reasoning", "id": "r", "summary": [],
     "content": [{"type": "reasoning_text", "text": "It is 12."}]},
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{\"a\": 7}"},
    {"type": "function_call_output", "call_id": "c", "output": "12"},
    {"role": "user", "content": "And 2 + 2?"}],
  "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}],
  "tool_choice": {"type": "allowed_tools", "mode": "auto",
                  "tools": [{"type": "function", "name": "add"}]}})";

const char* const kResponsesStream = R"({
  "max_output_tokens": 4, "temperature": 0, "stream": true, "input": "A cat?",
  "text": {"format": {"type": "json_schema", "name": "animal", "schema": {
    "type": "object", "properties": {"name": {"type": "string"}}}}}})";

const char* const kMessages = R"({
  "max_tokens": 4, "temperature": 0, "system": [{"type": "text", "text": "Be brief."}],
  "metadata": {"user_id": "u"},
  "messages": [
    {"role": "user", "content": "What is 7 + 5?"},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "12", "signature": ""},
      {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 7, "b": [5]}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "12"}]},
      {"type": "text", "text": "And 2 + 2?"}]}],
  "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
  "tool_choice": {"type": "auto"}})";

const char* const kGenerate = R"({
  "text": ["What is 7 + 5?", "A cat"], "rid": ["one", "two"], "stream": true,
  "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 2,
  "sampling_params": [{"max_new_tokens": 4, "temperature": 0},
                      {"max_new_tokens": 4, "stop_regex": "[0-9]{3}"}]})";

const char* const kGenerateIds =
    R"({"input_ids": [16, 17], "sampling_params": {"max_new_tokens": 4}})";

const char* const kCompletion = R"({
  "prompt": ["What is 7 + 5?", [16, 17]], "max_tokens": 4, "logprobs": 1, "echo": true, "n": 2})";

const char* const kConversation = R"({"messages": [{"role": "user", "content": "A cat?"}]})";

const char* const kTokenize = R"({"prompt": "What is 7 + 5?", "return_token_strs": true})";

// Returns a model with sizes only, since parsers read nothing else of it.
const ServedModel& some_model() {
  static const EngineInfo info = [] {
    EngineInfo i;
    i.model.vocab_size = 2048;
    i.context_length = 4096;
    i.max_total_tokens = 8192;
    return i;
  }();
  static const ServedModel model{&info, nullptr, nullptr, nullptr};
  return model;
}

std::vector<BodyParser> body_parsers() {
  const auto of_model = [](auto* parse) {
    return [parse](const Json& body) { std::ignore = parse(body, some_model()); };
  };
  const auto responses = [](const Json& body) {
    ResponseStore store({.max_bytes = 1 << 20});
    std::ignore = parse_responses(body, some_model(), {.store = &store, .who = "nobody"});
  };
  const auto logging = [](const Json& body) {
    if (auto observer = Observer::create({})) std::ignore = (*observer)->configure(body);
  };
  return {{"/v1/chat/completions",
           {kChat, kChatTools, kChatSchema, kStructuralTag},
           of_model(parse_chat)},
          {"/v1/chat/completions/render", {kConversation, kChatTools}, of_model(parse_chat)},
          {"/apply-template", {kConversation}, of_model(parse_chat)},
          {"/v1/completions", {kCompletion}, of_model(parse_completions)},
          {"/v1/completions/render", {kCompletion}, of_model(parse_completions)},
          {"/v1/responses", {kResponses, kResponsesStream}, responses},
          {"/v1/responses/input_tokens", {kResponses}, responses},
          {"/v1/messages", {kMessages}, of_model(parse_messages)},
          {"/v1/messages/count_tokens", {kMessages}, of_model(parse_count_tokens)},
          {"/generate", {kGenerate, kGenerateIds}, of_model(parse_generate)},
          {"/tokenize", {kTokenize, kConversation}, of_model(parse_tokenize)},
          {"/detokenize", {R"({"tokens": [16, 17]})"}, of_model(parse_detokenize)},
          {"/abort_request",
           {R"({"rid": "nobody"})"},
           [](const Json& body) { std::ignore = parse_abort(body); }},
          {"/configure_logging", {R"({"log_requests": false})"}, logging},
          {"/disaggregation_mode",
           {R"({"mode": "null"})"},
           [](const Json& body) { std::ignore = parse_disaggregation_change(body); }},
          {"/scale_ranks",
           {R"({"leave": [3]})", R"({"keep": 2})"},
           [](const Json& body) { std::ignore = parse_scale_ranks(body); }},
          {"/start_profile",
           {R"({"num_steps": 1})"},
           [](const Json& body) { std::ignore = parse_start_profile(body); }},
          {"/start_expert_distribution_record", {R"({"mode": "stat"})"}, [](const Json& body) {
             std::ignore = parse_expert_start(body);
           }}};
}

// Returns `body` with `value` at a path like "a.b"; missing objects are created. A list on the path
// gets one object.
Json with(Json body, std::string_view path, const Json& value) {
  Json* at = &body;
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    std::string_view name = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    const bool in_list = name.ends_with("[]");
    if (in_list) name.remove_suffix(2);
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[std::string(name)];
    if (!in_list) continue;
    if (!at->is_array() || at->empty()) *at = Json::array({Json::object()});
    at = &at->front();
  }
  *at = value;
  return body;
}

// Returns values that make a parser read more fields inside them, as `type` does in some objects.
std::vector<Json> openings(const Json& what) {
  const Json& kind = what["kind"];
  std::vector<Json> objects = {Json::object()};
  for (const char* type : {"json_schema", "structural_tag", "function", "enabled"})
    objects.push_back({{"type", type}});
  if (kind == "object") return objects;
  if (kind == "list") return {Json::array({Json::object()})};
  if (kind != "any") return {};
  objects.push_back(Json::array({Json::object()}));
  return objects;
}

Json fields_of(const BodyParser& one) {
  FieldRecorder::Known known;
  std::vector<std::string> unopened;
  const auto record = [&](const Json& body) {
    FieldRecorder recorder(body);
    one.parse(body);
    for (auto& [path, what] : recorder.known()) {
      const auto [field, is_new] = known.try_emplace(path, what);
      if (is_new) unopened.push_back(path);
      const Json& before = field->second["kind"];
      if (before == "any" || before == "ignored") field->second = what;
    }
  };
  for (const char* example : one.examples) record(Json::parse(example));
  while (!unopened.empty()) {
    const std::string path = std::move(unopened.back());
    unopened.pop_back();
    for (const char* example : one.examples)
      for (const Json& value : openings(known.at(path)))
        record(with(Json::parse(example), path, value));
  }
  return known;
}

}  // namespace

Json accepted_fields() {
  Json table = Json::array();
  for (const BodyParser& one : body_parsers()) {
    Json examples = Json::array();
    for (const char* example : one.examples) examples.push_back(Json::parse(example));
    table.push_back({{"path", one.path}, {"examples", examples}, {"fields", fields_of(one)}});
  }
  return table;
}

}  // namespace hocket
