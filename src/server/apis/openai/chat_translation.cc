#include "server/apis/openai/chat_translation.h"

#include <fmt/format.h>

#include "server/apis/openai/openai_request.h"

namespace hocket {
namespace {

bool names_field(std::string_view param, std::string_view field) {
  if (!param.starts_with(field)) return false;
  return param.size() == field.size() || param[field.size()] == '.' || param[field.size()] == '[';
}

}  // namespace

void pass_extensions(Fields& fields, Json& chat) {
  for (const char* name : {"min_p",
                           "frequency_penalty",
                           "presence_penalty",
                           "repetition_penalty",
                           "logit_bias",
                           "seed",
                           "sampling_seed",
                           "stop_token_ids",
                           "stop_regex",
                           "ignore_eos",
                           "min_tokens",
                           "skip_special_tokens",
                           "include_stop_str_in_output",
                           "no_stop_trim",
                           "rid",
                           "priority",
                           "routing_key",
                           "cache_salt",
                           "extra_key",
                           "session_id",
                           "id_slot",
                           "chat_template_kwargs",
                           "thinking_budget",
                           "documents",
                           "regex",
                           "ebnf",
                           "structural_tag"})
    if (const Json* value = fields.get(name)) chat[name] = *value;
}

Error with_client_field_names(Error e, const FieldNames& names) {
  const std::string before = e.param;
  for (const auto& [chat, client] : names) {
    const size_t at = chat.starts_with('.')        ? e.param.find(chat)
                      : names_field(e.param, chat) ? 0
                                                   : e.param.npos;
    if (at != e.param.npos) e.param.replace(at, chat.size(), client);
  }
  // The message begins with the name if the field itself is wrong.
  if (!before.empty() && e.message.starts_with(before))
    e.message.replace(0, before.size(), e.param);
  return e;
}

Result<GenerationRequest> parse_translated(const Json& chat, const ServedModel& model,
                                           const FieldNames& names) {
  auto request = parse_chat(chat, model);
  if (!request) return fail(with_client_field_names(std::move(request).error(), names));
  return request;
}

std::unexpected<Error> wrong_part(const std::string& where, std::string_view what) {
  return fail(error(ErrorCode::invalid_request, "{} {}", where, what).with_param(where));
}

Result<std::string> string_member(const Json& object, const char* name, const std::string& at) {
  const auto found = object.find(name);
  const std::string where = fmt::format("{}.{}", at, name);
  if (found == object.end()) return wrong_part(where, "is missing");
  if (!found->is_string())
    return wrong_part(where, fmt::format("must be a string, not {}", type_name(*found)));
  return found->get<std::string>();
}

}  // namespace hocket
