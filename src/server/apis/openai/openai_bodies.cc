#include "server/apis/openai/openai_bodies.h"

#include <string>
#include <utility>
#include <vector>

#include "server/apis/openai/openai_request.h"
#include "server/generation/answer.h"
#include "server/generation/task_pool.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr const char* kChatExample = R"({
  "model": "tiny", "max_tokens": 4, "temperature": 0, "stop": ["zz"], "stop_token_ids": [5],
  "logit_bias": {"16": 1}, "chat_template_kwargs": {"enable_thinking": false},
  "stream": true, "stream_options": {"include_usage": true},
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 7 + 5?"}]}]})";

constexpr const char* kToolsExample = R"({
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

constexpr const char* kSchemaExample = R"({
  "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "A cat?"}],
  "response_format": {"type": "json_schema", "json_schema": {
    "name": "animal", "strict": true, "schema": {
      "type": "object", "$defs": {"n": {"type": "string", "pattern": "[a-z]+"}},
      "properties": {"name": {"$ref": "#/$defs/n"}, "legs": {"enum": [2, 4]},
                     "of": {"anyOf": [{"type": "null"}]}},
      "required": ["name"]}}}})";

constexpr const char* kTagExample = R"({
  "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "A cat?"}],
  "structural_tag": {"type": "structural_tag", "triggers": ["<f="], "structures": [
    {"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"}]}})";

constexpr const char* kConversationExample =
    R"({"messages": [{"role": "user", "content": "A cat?"}]})";

constexpr const char* kCompletionExample = R"({
  "prompt": ["What is 7 + 5?", [16, 17]], "max_tokens": 4, "logprobs": 1, "echo": true, "n": 2})";

// Returns a request as it would be computed: each prompt's text and tokens, and the limit of the
// answer.
template <Result<GenerationRequest> (*parse)(const Json&, const ServedModel&)>
Result<Json> render(const Json& body, const ServedModel& model, HeldBytes& held) {
  HOCKET_TRY(GenerationRequest request, parse(body, model));
  if (model.tokenizer == nullptr) return fail(no_tokenizer_error());
  Json prompts = Json::array();
  for (Prompt& prompt : request.prompts) {
    TaskPool::yield_turn();
    HOCKET_TRY(const std::vector<TokenId> ids, prompt_ids(prompt, request, model));
    HOCKET_TRY_VOID(fit_to_context(prompt, static_cast<int>(ids.size()), request, model));
    HOCKET_TRY(std::string text, prompt_text(prompt, request, model));
    HOCKET_TRY_VOID(held.grow(std::ssize(ids) * kTokenTextBytes + std::ssize(text)));
    prompts.push_back({{"prompt", std::move(text)},
                       {"token_ids", ids_json(ids)},
                       {"count", ids.size()},
                       {"max_tokens", prompt.sampling.max_new_tokens}});
  }
  if (!request.batch) return std::move(prompts.front());
  return prompts;
}

Result<Json> apply_template(const Json& body, const ServedModel& model, HeldBytes& held) {
  HOCKET_TRY(const Json rendered, render<parse_chat>(body, model, held));
  return Json{{"prompt", rendered["prompt"]}};
}

}  // namespace

std::span<const ApiBody> chat_bodies() {
  static constexpr const char* kChats[] = {kChatExample, kToolsExample, kSchemaExample,
                                           kTagExample};
  static constexpr const char* kRendered[] = {kConversationExample, kToolsExample};
  static constexpr const char* kTemplated[] = {kConversationExample};
  static constexpr ApiBody kBodies[] = {
      {"/v1/chat/completions", kChats, read_body<parse_chat>},
      {"/v1/chat/completions/render", kRendered, read_body<parse_chat>, render<parse_chat>},
      {"/apply-template", kTemplated, read_body<parse_chat>, apply_template}};
  return kBodies;
}

std::span<const ApiBody> completions_bodies() {
  static constexpr const char* kCompletions[] = {kCompletionExample};
  static constexpr ApiBody kBodies[] = {
      {"/v1/completions", kCompletions, read_body<parse_completions>},
      {"/v1/completions/render", kCompletions, read_body<parse_completions>,
       render<parse_completions>}};
  return kBodies;
}

}  // namespace hocket
