// Fuzzes the bodies of every JSON endpoint. Any bytes give a request or an error message, and an
// accepted request is within the limits on which the engine relies.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "core/request_bounds.h"
#include "server/apis/anthropic/messages_request.h"
#include "server/apis/openai/openai_errors.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/responses/responses_request.h"
#include "server/apis/sglang/generate_request.h"
#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/http/request_target.h"

using namespace hocket;

namespace {

const EngineInfo& info() {
  static const EngineInfo value = [] {
    EngineInfo i;
    i.model.vocab_size = 2048;
    i.context_length = 4096;
    i.max_total_tokens = 8192;
    return i;
  }();
  return value;
}

void check_error(const Error& e) {
  HOCKET_CHECK(!e.message.empty());
  HOCKET_CHECK(is_valid_utf8(kOpenAiErrors.body(e)));
  // 404: the request continues a stored response that does not exist.
  HOCKET_CHECK((http_status(e.code) == 400 || e.code == ErrorCode::not_found));
}

void check_sampling(const SamplingParams& s) {
  for (const auto& [field, range, value] : kSamplingNumbers) HOCKET_CHECK(range.holds(s.*value));
  HOCKET_CHECK(s.top_k >= 0);
  HOCKET_CHECK(s.num_top_logprobs <= kMaxTopLogprobs);
  HOCKET_CHECK(std::ranges::is_sorted(s.logit_bias));
  for (const TokenId id : s.stop_ids) HOCKET_CHECK((value(id) >= 0 && value(id) < 2048));
  for (const std::string& stop : s.stop) HOCKET_CHECK(!stop.empty());
}

void check_generation(Result<GenerationRequest> request, const ServedModel& model) {
  if (!request) return check_error(request.error());
  size_t answers = 0;
  for (const Prompt& prompt : request->prompts) {
    check_sampling(prompt.sampling);
    HOCKET_CHECK((prompt.n >= 1 && prompt.n <= kMaxChoices));
    answers += static_cast<size_t>(prompt.n);
  }
  HOCKET_CHECK((answers >= 1 && answers <= static_cast<size_t>(kMaxPrompts)));
  const auto prepared = prepare_request(*std::move(request), model);
  if (!prepared) return check_error(prepared.error());
  for (size_t i = 0; i < prepared->prompts.size(); ++i) {
    const SamplingParams& s = prepared->request.prompts[i].sampling;
    HOCKET_CHECK(!prepared->prompts[i].empty());
    HOCKET_CHECK(s.max_new_tokens >= 1);
    HOCKET_CHECK(prepared->prompts[i].size() + static_cast<size_t>(s.max_new_tokens) <= 4096);
  }
}

template <class T>
void check_parsed(const Result<T>& parsed) {
  if (!parsed) check_error(parsed.error());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto body = parse_json_object(bytes);
  if (!body) return check_error(body.error()), 0;
  HOCKET_CHECK(parse_json(to_text(*body)).value() == *body);
  const ServedModel model{&info(), nullptr, nullptr, nullptr};
  check_generation(parse_chat(*body, model), model);
  check_generation(parse_messages(*body, model), model);
  check_parsed(parse_count_tokens(*body, model));
  static ResponseStore store({.max_bytes = 1 << 20});
  check_generation(parse_responses(*body, model, {.store = &store, .who = "me"}), model);
  check_generation(parse_completions(*body, model), model);
  check_generation(parse_generate(*body, model), model);
  check_parsed(parse_tokenize(*body, model));
  check_parsed(parse_detokenize(*body, model));
  check_parsed(parse_abort(*body));
  return 0;
}
