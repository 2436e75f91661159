#include "capi/request_rules.h"

#include <hocket/hocket.h>

#include <algorithm>

#include "core/bounded_json.h"
#include "core/request_bounds.h"
#include "core/server_settings.h"
#include "text/answers/chat_template_caps.h"
#include "text/grammar/ebnf.h"
#include "text/grammar/spellings.h"
#include "text/grammar/structural_tag.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

std::unexpected<Error> refuse(std::string_view field, std::string why) {
  return fail(
      error(ErrorCode::invalid_request, "{} {}", field, why).with_param(std::string(field)));
}

Result<void> check_range(std::string_view field, double given, NumberRange range) {
  if (range.holds(given)) return {};
  return refuse(field, fmt::format("is {}, must be {}", given, range.text()));
}

Result<void> check_stops(const SamplingParams& s, int vocab_size) {
  if (s.stop_ids.size() > kMaxStopIds)
    return refuse("stop_tokens",
                  fmt::format("are {}, at most {} may be", s.stop_ids.size(), kMaxStopIds));
  for (const TokenId id : s.stop_ids)
    if (value(id) < 0 || value(id) >= vocab_size)
      return refuse("stop_tokens", fmt::format("hold {}, which is outside the vocabulary of {}",
                                               value(id), vocab_size));
  if (s.stop.size() > kMaxStops)
    return refuse("stop_texts", fmt::format("are {}, at most {} may be", s.stop.size(), kMaxStops));
  for (const std::string& stop : s.stop)
    if (stop.empty() || stop.size() > kMaxStopBytes)
      return refuse("stop_texts", fmt::format("hold one of {} bytes, must be 1 to {}", stop.size(),
                                              kMaxStopBytes));
  return {};
}

Result<void> check_bias(const SamplingParams& s) {
  for (const auto& [token, bias] : s.logit_bias)
    HOCKET_TRY_VOID(check_range("bias", bias, kLogitBiasRange));
  const auto falling = [](const auto& a, const auto& b) { return b.first <= a.first; };
  if (std::ranges::adjacent_find(s.logit_bias, falling) != s.logit_bias.end())
    return refuse("bias_tokens", "do not ascend");
  return {};
}

Result<Json> read_json(const char* what, std::string_view text) {
  Json parsed = parse_bounded_json(text);
  if (parsed.is_discarded())
    return refuse(what, fmt::format("is no JSON of at most {} levels", kMaxJsonDepth));
  return parsed;
}

// Reads JSON of a chat, with the size limit of the server's request bodies.
Result<Json> read_chat_json(const char* what, std::string_view text) {
  constexpr int64_t kMax = HttpSettings().max_body_bytes;
  if (std::ssize(text) > kMax)
    return refuse(what, fmt::format("has {} bytes, at most {} are taken", text.size(), kMax));
  return read_json(what, text);
}

Result<void> check_messages(const Json& messages) {
  const auto is_object = [](const Json& one) { return one.is_object(); };
  if (!messages.is_array() || messages.empty() || !std::ranges::all_of(messages, is_object))
    return refuse("messages", "must be an array of objects with role and content");
  if (messages.size() > kMaxMessages)
    return refuse("messages",
                  fmt::format("are {}, at most {} may be", messages.size(), kMaxMessages));
  if (const int64_t arguments = argument_texts(messages).num_bytes; arguments > kMaxArgumentsBytes)
    return refuse("messages", fmt::format("hold {} bytes of arguments of tool calls, at most {} "
                                          "are taken; leave out the oldest",
                                          arguments, kMaxArgumentsBytes));
  return {};
}

Result<std::string> choices_as_regex(std::string_view text) {
  HOCKET_TRY(const Json list, read_json("grammar", text));
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (!list.is_array() || list.empty() || list.size() > kMaxStructureChoices ||
      !std::ranges::all_of(list, is_text))
    return refuse("grammar", fmt::format("of HOCKET_CHOICE must be an array of 1 to {} texts",
                                         kMaxStructureChoices));
  return regex_of_choices(list.get<std::vector<std::string>>());
}

Result<GrammarSpec> spell(int kind, std::string_view text) {
  switch (kind) {
    case HOCKET_JSON_SCHEMA: {
      HOCKET_TRY(const Json schema, read_json("grammar", text));
      if (!schema.is_object() && !schema.is_boolean())
        return refuse("grammar", "of HOCKET_JSON_SCHEMA must be an object");
      return GrammarSpec{.kind = GrammarKind::json_schema, .text = std::string(text)};
    }
    case HOCKET_REGEX:
      return GrammarSpec{.kind = GrammarKind::regex, .text = regex_without_anchors(text)};
    case HOCKET_EBNF: {
      HOCKET_TRY(std::string lark, lark_of_ebnf(text));
      return GrammarSpec{.kind = GrammarKind::lark, .text = std::move(lark)};
    }
    case HOCKET_LARK:
      return GrammarSpec{.kind = GrammarKind::lark, .text = std::string(text)};
    case HOCKET_CHOICE: {
      HOCKET_TRY(std::string regex, choices_as_regex(text));
      return GrammarSpec{.kind = GrammarKind::regex, .text = std::move(regex)};
    }
    case HOCKET_STRUCTURAL_TAG: {
      HOCKET_TRY(std::string lark, lark_of_structural_tag(text));
      return GrammarSpec{.kind = GrammarKind::lark, .text = std::move(lark)};
    }
    default:
      return refuse("grammar_kind",
                    fmt::format("is {}, which is no HOCKET_JSON_SCHEMA or the like", kind));
  }
}

}  // namespace

Result<std::shared_ptr<const GrammarSpec>> read_grammar(int kind, std::string_view text) {
  if (text.empty()) return refuse("grammar", "is empty");
  if (text.size() > kMaxGrammarBytes)
    return refuse("grammar",
                  fmt::format("has {} bytes, at most {} are taken", text.size(), kMaxGrammarBytes));
  auto spelled = spell(kind, text);
  if (!spelled) {
    if (!spelled.error().param.empty()) return fail(std::move(spelled).error());
    return refuse("grammar", "cannot be made one: " + spelled.error().message);
  }
  spelled->field = "grammar";
  return std::make_shared<const GrammarSpec>(*std::move(spelled));
}

Result<void> check_sampling(const SamplingParams& s, int vocab_size) {
  for (const auto& [field, range, value] : kSamplingNumbers)
    HOCKET_TRY_VOID(check_range(field, s.*value, range));
  if (s.top_k < 0) return refuse("top_k", "is negative; 0 means all");
  if (s.max_new_tokens < 0)
    return refuse("max_new_tokens", "is negative; 0 means the rest of the context");
  if (s.min_new_tokens < 0) return refuse("min_new_tokens", "is negative");
  if (s.max_new_tokens > 0 && s.min_new_tokens > s.max_new_tokens)
    return refuse("min_new_tokens", fmt::format("is {}, more than max_new_tokens {}",
                                                s.min_new_tokens, s.max_new_tokens));
  if (s.num_top_logprobs < -1 || s.num_top_logprobs > kMaxTopLogprobs)
    return refuse("logprobs",
                  fmt::format("is {}, must be -1 to {}", s.num_top_logprobs, kMaxTopLogprobs));
  HOCKET_TRY_VOID(check_stops(s, vocab_size));
  return check_bias(s);
}

Result<ReasoningStart> read_reasoning_start(int reasoning) {
  static_assert(HOCKET_NO_REASONING == static_cast<int>(ReasoningStart::none));
  static_assert(HOCKET_REASONING_POSSIBLE == static_cast<int>(ReasoningStart::possible));
  static_assert(HOCKET_REASONING_OPEN == static_cast<int>(ReasoningStart::open));
  if (reasoning < HOCKET_NO_REASONING || reasoning > HOCKET_REASONING_OPEN)
    return refuse("reasoning",
                  fmt::format("is {}, which is no HOCKET_NO_REASONING or the like", reasoning));
  return static_cast<ReasoningStart>(reasoning);
}

Result<ChatInput> read_chat(std::string_view messages_json, std::string_view extra_json) {
  ChatInput chat;
  HOCKET_TRY(chat.messages, read_chat_json("messages", messages_json));
  HOCKET_TRY_VOID(check_messages(chat.messages));
  if (extra_json.empty()) return chat;
  HOCKET_TRY(const Json extra, read_chat_json("extra", extra_json));
  if (!extra.is_object()) return refuse("extra", "must be an object");
  for (const auto& [name, given] : extra.items()) {
    if (name == "tools" && given.is_array() && given.size() <= kMaxTools)
      chat.tools = given;
    else if (name == "chat_template_kwargs" && given.is_object())
      chat.kwargs = given;
    else if (name == "add_generation_prompt" && given.is_boolean())
      chat.add_generation_prompt = given.get<bool>();
    else if (name == "continue_final_message" && given.is_boolean())
      chat.continue_final_message = given.get<bool>();
    else
      return refuse("extra", fmt::format("has '{}', which is unknown, too long or of a wrong type",
                                         name.substr(0, 64)));
  }
  if (chat.continue_final_message) chat.add_generation_prompt = false;
  return chat;
}

}  // namespace hocket
