#include "server/apis/anthropic/messages_bodies.h"

#include "server/apis/anthropic/messages_request.h"

namespace hocket {
namespace {

constexpr const char* kMessagesExample = R"({
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

Result<Json> count_tokens(const Json& body, const ServedModel& model, HeldBytes&) {
  HOCKET_TRY(const GenerationRequest request, parse_count_tokens(body, model));
  HOCKET_TRY(const auto ids, prompt_ids(request.prompts.front(), request, model));
  return Json{{"input_tokens", ids.size()}};
}

}  // namespace

std::span<const ApiBody> messages_bodies() {
  static constexpr const char* kExamples[] = {kMessagesExample};
  static constexpr ApiBody kBodies[] = {
      {"/v1/messages", kExamples, read_body<parse_messages>},
      {"/v1/messages/count_tokens", kExamples, read_body<parse_count_tokens>, count_tokens}};
  return kBodies;
}

}  // namespace hocket
