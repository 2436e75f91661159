#include "capi/request_rules.h"

#include <algorithm>

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kStopsMax = 64;
constexpr size_t kStopBytesMax = 1024;

std::unexpected<Error> refuse(const char* field, std::string why) {
  return fail(
      error(ErrorCode::invalid_request, "{} {}", field, why).with_param(std::string(field)));
}

// NaN is in no range.
Result<void> check_range(const char* field, double given, double least, double most) {
  if (given >= least && given <= most) return {};
  return refuse(field, fmt::format("is {}, must be {} to {}", given, least, most));
}

Result<void> check_stops(const SamplingParams& s) {
  if (s.stop.size() > kStopsMax)
    return refuse("stop_texts", fmt::format("are {}, at most {} may be", s.stop.size(), kStopsMax));
  for (const std::string& stop : s.stop)
    if (stop.empty() || stop.size() > kStopBytesMax)
      return refuse("stop_texts", fmt::format("hold one of {} bytes, must be 1 to {}", stop.size(),
                                              kStopBytesMax));
  return {};
}

Result<void> check_bias(const SamplingParams& s) {
  for (size_t i = 0; i < s.logit_bias.size(); ++i) {
    HOCKET_TRY_VOID(check_range("bias", s.logit_bias[i].second, -100, 100));
    if (i > 0 && s.logit_bias[i].first <= s.logit_bias[i - 1].first)
      return refuse("bias_tokens", "do not ascend");
  }
  return {};
}

Result<Json> read_json(const char* what, std::string_view text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return refuse(what, "is not JSON");
  return parsed;
}

}  // namespace

Result<void> check_sampling(const SamplingParams& s, int vocab_size) {
  HOCKET_TRY_VOID(check_range("temperature", s.temperature, 0, 2));
  HOCKET_TRY_VOID(check_range("min_p", s.min_p, 0, 1));
  HOCKET_TRY_VOID(check_range("frequency_penalty", s.frequency_penalty, -2, 2));
  HOCKET_TRY_VOID(check_range("presence_penalty", s.presence_penalty, -2, 2));
  if (!(s.top_p > 0 && s.top_p <= 1))
    return refuse("top_p", fmt::format("is {}, must be above 0, at most 1", s.top_p));
  if (!(s.repetition_penalty > 0))
    return refuse("repetition_penalty",
                  fmt::format("is {}, must be above 0", s.repetition_penalty));
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
  for (const TokenId id : s.stop_ids)
    if (value(id) < 0 || value(id) >= vocab_size)
      return refuse("stop_tokens", fmt::format("hold {}, which is outside the vocabulary of {}",
                                               value(id), vocab_size));
  HOCKET_TRY_VOID(check_stops(s));
  return check_bias(s);
}

Result<ChatInput> read_chat(std::string_view messages_json, std::string_view extra_json) {
  ChatInput chat;
  HOCKET_TRY(chat.messages, read_json("messages", messages_json));
  const auto is_object = [](const Json& one) { return one.is_object(); };
  if (!chat.messages.is_array() || chat.messages.empty() ||
      !std::ranges::all_of(chat.messages, is_object))
    return refuse("messages", "must be an array of objects with role and content");
  if (extra_json.empty()) return chat;
  HOCKET_TRY(const Json extra, read_json("extra", extra_json));
  if (!extra.is_object()) return refuse("extra", "must be an object");
  for (const auto& [name, given] : extra.items()) {
    if (name == "tools" && given.is_array())
      chat.tools = given;
    else if (name == "chat_template_kwargs" && given.is_object())
      chat.kwargs = given;
    else if (name == "add_generation_prompt" && given.is_boolean())
      chat.add_generation_prompt = given.get<bool>();
    else if (name == "continue_final_message" && given.is_boolean())
      chat.continue_final_message = given.get<bool>();
    else
      return refuse("extra", fmt::format("has '{}', which is unknown or of a wrong type", name));
  }
  if (chat.continue_final_message) chat.add_generation_prompt = false;
  return chat;
}

}  // namespace hocket
