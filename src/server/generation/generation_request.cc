#include "server/generation/generation_request.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/mix.h"
#include "server/generation/api.h"
#include "server/http/json_body.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

// Renders a chat, its earlier messages as the template needs them. `max_tokens`: limit on the
// prompt's tokens. `held` counts the trees that arguments of tool calls become.
Result<RenderedPrompt> rendered_chat(const ChatInput& chat, int64_t max_tokens,
                                     const ServedModel& model, HeldBytes& held) {
  if (model.chat_template == nullptr)
    return fail(error(ErrorCode::template_failed, "the model has no chat template")
                    .with_fix("start with --chat-template FILE, or use /v1/completions"));
  const ChatTemplateCaps caps = model.formats == nullptr ? ChatTemplateCaps() : model.formats->caps;
  const ArgumentTexts arguments = argument_texts(chat.messages);
  HOCKET_TRY_VOID(model.tokenizer->check_size(arguments.num_bytes, max_tokens));
  if (!caps.arguments_as_text)
    HOCKET_TRY_VOID(held.grow(kConversationCopies * arguments.tree_bytes));
  ChatInput fitted = chat;
  fit_messages(fitted, caps);
  return model.chat_template->render(fitted);
}

int64_t max_prompt_tokens(const GenerationRequest& request, const ServedModel& model) {
  return std::max<int64_t>(request.max_counted_tokens, model.info->context_length);
}

}  // namespace

Error no_tokenizer_error() {
  return error(ErrorCode::no_tokenizer,
               "the model folder has no tokenizer.json, so text cannot be read or written")
      .with_fix("send token ids to /generate as input_ids, or start with --tokenizer-path DIR");
}

Result<std::vector<TokenId>> prompt_ids(const Prompt& prompt, const GenerationRequest& request,
                                        const ServedModel& model) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt.input)) return *ids;
  if (model.tokenizer == nullptr) return fail(no_tokenizer_error());
  const int64_t max_tokens = max_prompt_tokens(request, model);
  const auto* chat = std::get_if<ChatInput>(&prompt.input);
  const auto encoded = [&]() -> Result<std::vector<TokenId>> {
    if (chat != nullptr) {
      HeldBytes held(request.memory);
      HOCKET_TRY(const RenderedPrompt rendered, rendered_chat(*chat, max_tokens, model, held));
      HOCKET_TRY_VOID(model.tokenizer->check_length(rendered.marked, max_tokens));
      return model.tokenizer->encode(rendered);
    }
    const auto& text = std::get<std::string>(prompt.input);
    HOCKET_TRY_VOID(model.tokenizer->check_length(text, max_tokens));
    return model.tokenizer->encode(text, {.add_special_tokens = request.add_special_tokens});
  };
  auto ids = encoded();
  const auto is_of_the_text = [](ErrorCode code) {
    return code == ErrorCode::context_length_exceeded || code == ErrorCode::invalid_request;
  };
  if (!ids && is_of_the_text(ids.error().code) && ids.error().param.empty())
    ids.error().param = request.api->fields.prompt;
  return ids;
}

Result<std::string> prompt_text(const Prompt& prompt, const GenerationRequest& request,
                                const ServedModel& model) {
  if (const auto* text = std::get_if<std::string>(&prompt.input)) return *text;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt.input))
    return model.tokenizer->decode(*ids, SpecialTokens::keep);
  HeldBytes held(request.memory);
  HOCKET_TRY(const RenderedPrompt rendered,
             rendered_chat(std::get<ChatInput>(prompt.input), max_prompt_tokens(request, model),
                           model, held));
  return rendered.text();
}

Result<void> fit_to_context(Prompt& prompt, int prompt_tokens, const GenerationRequest& request,
                            const ServedModel& model) {
  const PromptFields& names = request.api->fields;
  if (prompt_tokens == 0)
    return fail(
        error(ErrorCode::invalid_request, "the prompt has no token").with_param(names.prompt));
  const int context = model.info->context_length;
  const int asked = std::max(1, prompt.max_tokens.value_or(1));
  if (static_cast<int64_t>(prompt_tokens) + asked > context) {
    if (prompt_tokens >= context || !prompt.max_tokens)
      return fail(error(ErrorCode::context_length_exceeded,
                        "the prompt has {} tokens, the context holds {} tokens, prompt and answer "
                        "together",
                        prompt_tokens, context)
                      .with_fix("shorten the prompt")
                      .with_param(names.prompt));
    return fail(error(ErrorCode::context_length_exceeded,
                      "the prompt has {} tokens and {} are asked for, together {}; the context "
                      "holds {} tokens",
                      prompt_tokens, asked, static_cast<int64_t>(prompt_tokens) + asked, context)
                    .with_fix(fmt::format("ask for at most {} tokens", context - prompt_tokens))
                    .with_param(names.max_tokens));
  }
  int rest = context - prompt_tokens;
  // If the KV pool is smaller than the context, it limits a request without max_tokens too, as long
  // as that leaves at least one token.
  if (const int64_t room = model.info->max_total_tokens - prompt_tokens; room >= 1)
    rest = static_cast<int>(std::min<int64_t>(rest, room));
  SamplingParams& sampling = prompt.sampling;
  sampling.max_new_tokens = prompt.max_tokens ? asked : rest;
  if (sampling.min_new_tokens > sampling.max_new_tokens)
    return fail(error(ErrorCode::invalid_request,
                      "min_tokens {} is more than the limit of {} tokens", sampling.min_new_tokens,
                      sampling.max_new_tokens)
                    .with_param(names.min_tokens));
  return {};
}

namespace {

// Hashes each with its length, so that no two lists look the same; cryptographically, so that no
// client can hit the name of another one.
CacheNamespace hash_names(std::initializer_list<std::string_view> names) {
  std::string all;
  for (const std::string_view name : names) all += fmt::format("{}:{}", name.size(), name);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  EVP_Digest(all.data(), all.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  std::array<uint64_t, 2> halves{};
  std::memcpy(halves.data(), digest.data(), sizeof halves);
  return {halves[0], halves[1]};
}

}  // namespace

CacheNamespace cache_namespace_of(const GenerationRequest& request) {
  const auto& [owner, salt, key] =
      std::tie(request.cache_owner, request.cache_salt, request.extra_key);
  if (owner.empty() && salt.empty() && key.empty()) return {};
  return hash_names({owner, salt, key});
}

SessionKey session_key_of(std::string_view cache_owner, std::string_view session) {
  return session.empty() ? SessionKey() : hash_names({"session", cache_owner, session});
}

SessionKey session_owner_of(std::string_view cache_owner) {
  return cache_owner.empty() ? SessionKey() : hash_names({"owner of sessions", cache_owner});
}

std::string slot_session(int number) {
  return fmt::format("slot {}", number);
}

uint64_t choice_seed(uint64_t seed, int i) {
  return i == 0 ? seed : mix64(seed + kMixStep * static_cast<uint64_t>(i));
}

uint64_t fresh_seed() {
  uint64_t seed = 0;
  HOCKET_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed) == 1);
  return seed;
}

}  // namespace hocket
