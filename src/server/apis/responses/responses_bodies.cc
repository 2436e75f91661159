#include "server/apis/responses/responses_bodies.h"

#include <tuple>

#include "server/apis/responses/responses_request.h"

namespace hocket {
namespace {

constexpr const char* kResponsesExample = R"({
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

constexpr const char* kResponsesStreamExample = R"({
  "max_output_tokens": 4, "temperature": 0, "stream": true, "input": "A cat?",
  "text": {"format": {"type": "json_schema", "name": "animal", "schema": {
    "type": "object", "properties": {"name": {"type": "string"}}}}}})";

void read_responses_body(const Json& body, const ServedModel& model) {
  ResponseStore store({.max_bytes = 1 << 20});
  std::ignore = parse_responses(body, model, {.store = &store, .who = "nobody"});
}

}  // namespace

std::span<const ApiBody> responses_bodies() {
  static constexpr const char* kAnswered[] = {kResponsesExample, kResponsesStreamExample};
  static constexpr const char* kCounted[] = {kResponsesExample};
  static constexpr ApiBody kBodies[] = {
      {"/v1/responses", kAnswered, read_responses_body},
      {"/v1/responses/input_tokens", kCounted, read_responses_body}};
  return kBodies;
}

}  // namespace hocket
