#include "server/apis/sglang/generate_bodies.h"

#include <tuple>
#include <utility>
#include <vector>

#include "server/apis/openai/openai_api.h"
#include "server/apis/sglang/generate_request.h"
#include "server/generation/answer.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr const char* kGenerateExample = R"({
  "text": ["What is 7 + 5?", "A cat"], "rid": ["one", "two"], "stream": true,
  "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 2,
  "sampling_params": [{"max_new_tokens": 4, "temperature": 0},
                      {"max_new_tokens": 4, "stop_regex": "[0-9]{3}"}]})";

constexpr const char* kGenerateIdsExample =
    R"({"input_ids": [16, 17], "sampling_params": {"max_new_tokens": 4}})";

constexpr const char* kTokenizeExample =
    R"({"prompt": "What is 7 + 5?", "return_token_strs": true})";

constexpr const char* kTokenizeChatExample =
    R"({"messages": [{"role": "user", "content": "A cat?"}]})";

constexpr int64_t kCountedTokens = 64 << 10;  // limit of /tokenize, above the context's too
constexpr size_t kMaxDetokenizedBytes = 8 << 20;

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
                      "the tokens have {} bytes of text; at most {} are allowed in a request",
                      bytes, kMaxDetokenizedBytes)
                    .with_fix("send fewer tokens a request")
                    .with_param("tokens"));
  HOCKET_TRY_VOID(held.grow(4 * static_cast<int64_t>(bytes)));  // twice in the tree, once as text
  HOCKET_TRY(const std::string text, model.tokenizer->decode(request.tokens, request.special));
  return Json{{"text", text}, {"prompt", text}};
}

}  // namespace

std::span<const ApiBody> generate_bodies() {
  static constexpr const char* kGenerates[] = {kGenerateExample, kGenerateIdsExample};
  static constexpr const char* kTokenizes[] = {kTokenizeExample, kTokenizeChatExample};
  static constexpr const char* kDetokenizes[] = {R"({"tokens": [16, 17]})"};
  static constexpr const char* kAborts[] = {R"({"rid": "nobody"})"};
  static constexpr ApiBody kBodies[] = {
      {"/generate", kGenerates, read_body<parse_generate>},
      {"/tokenize", kTokenizes, read_body<parse_tokenize>, tokenize},
      {"/detokenize", kDetokenizes, read_body<parse_detokenize>, detokenize},
      {"/abort_request", kAborts,
       [](const Json& body, const ServedModel&) { std::ignore = parse_abort(body); }}};
  return kBodies;
}

}  // namespace hocket
