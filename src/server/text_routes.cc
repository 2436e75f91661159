#include "server/text_routes.h"

#include <utility>

#include "server/apis/anthropic/messages_request.h"
#include "server/apis/openai/openai_api.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/sglang/generate_request.h"
#include "server/generation/answer.h"
#include "server/generation/task_pool.h"
#include "server/http/error_map.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr int64_t kTokenTextBytes = 128;      // bytes per token: a number in a tree, and its text
constexpr int64_t kCountedTokens = 64 << 10;  // limit of /tokenize, above the context's too
constexpr size_t kMaxDetokenizedBytes = 8 << 20;

using Parse = Result<GenerationRequest> (*)(const Json& body, const ServedModel& model);

Json token_strings(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  Json out = Json::array();
  for (const TokenId id : ids) out.push_back(token_text(tokenizer, id));
  return out;
}

Result<Json> tokenize(const Json& body, const ServedModel& model, HeldBytes& held) {
  HOCKET_TRY(TokenizeRequest request, parse_tokenize(body, model));
  GenerationRequest like;
  like.api = &kChatApi;
  like.add_special_tokens = request.add_special_tokens;
  like.max_counted_tokens = kCountedTokens;
  Prompt prompt;
  if (auto* chat = std::get_if<ChatInput>(&request.input)) {
    prompt.input = std::move(*chat);
  } else {
    like.api = &kCompletionsApi;  // its errors call the text `prompt`
    prompt.input = std::move(std::get<std::string>(request.input));
  }
  HOCKET_TRY(const std::vector<TokenId> ids, prompt_ids(prompt, like, model));
  HOCKET_TRY_VOID(held.grow(std::ssize(ids) * kTokenTextBytes));
  Json out = {{"tokens", ids_json(ids)},
              {"count", ids.size()},
              {"max_model_len", model.info->context_length}};
  if (request.return_token_strs) out["token_strs"] = token_strings(*model.tokenizer, ids);
  return out;
}

Result<Json> detokenize(const Json& body, const ServedModel& model, HeldBytes& held) {
  if (model.tokenizer == nullptr) return fail(no_tokenizer_error());
  HOCKET_TRY(const DetokenizeRequest request, parse_detokenize(body, model));
  size_t bytes = 0;
  for (const TokenId id : request.tokens) bytes += model.tokenizer->token_bytes(id).size();
  if (bytes > kMaxDetokenizedBytes)
    return fail(error(ErrorCode::invalid_request,
                      "tokens come to {} bytes of text, at most {} are made at once", bytes,
                      kMaxDetokenizedBytes)
                    .with_fix("send fewer tokens a request")
                    .with_param("tokens"));
  HOCKET_TRY_VOID(held.grow(4 * static_cast<int64_t>(bytes)));  // twice in the tree, once as text
  HOCKET_TRY(const std::string text, model.tokenizer->decode(request.tokens, request.special));
  return Json{{"text", text}, {"prompt", text}};
}

// Returns the named tokens, which programs need that tokenize with /tokenize.
Result<Json> tokenizer_info(const ServedModel& model) {
  if (model.tokenizer == nullptr) return fail(no_tokenizer_error());
  Json info = {{"vocab_size", model.tokenizer->vocab_size()},
               {"model_max_length", model.info->context_length}};
  for (const auto& [name, text] : model.tokenizer->named_tokens()) info[name] = text;
  return info;
}

Result<Json> count_tokens(const Json& body, const ServedModel& model, HeldBytes&) {
  HOCKET_TRY(const GenerationRequest request, parse_count_tokens(body, model));
  HOCKET_TRY(const auto ids, prompt_ids(request.prompts.front(), request, model));
  return Json{{"input_tokens", ids.size()}};
}

// Returns a request as it would be computed: each prompt's text and tokens, and the limit of the
// answer.
template <Parse parse>
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

void add_text_routes(std::vector<Route>& routes, const ServedModel& model) {
  const auto post = [&](std::string_view path,
                        Result<Json> (*answer)(const Json&, const ServedModel&, HeldBytes&)) {
    routes.push_back({"POST", path, HandlerThread::text,
                      [=](const HttpRequest& request, const auto& exchange, TimePoint) {
                        HeldBytes held(request.memory);
                        const auto body =
                            parse_json_object(request.body, held, kConversationCopies);
                        respond_json(*exchange, body ? answer(*body, model, held) : body);
                      }});
  };
  post("/tokenize", tokenize);
  post("/detokenize", detokenize);
  post("/v1/messages/count_tokens", count_tokens);
  post("/apply-template", apply_template);
  post("/v1/chat/completions/render", render<parse_chat>);
  post("/v1/completions/render", render<parse_completions>);
  routes.push_back({"GET", "/tokenizer_info", HandlerThread::text,
                    [=](const HttpRequest&, const auto& exchange, TimePoint) {
                      respond_json(*exchange, tokenizer_info(model));
                    }});
}

}  // namespace hocket
