#include "capi/c_structs.h"

#include <limits>

#include "capi/request_rules.h"

namespace hocket {
namespace {

Result<void> read_lists(const hocket_request& r, TextRequest& out) {
  if (r.prompt_count > 0) HOCKET_TRY_VOID(need(r.prompt, "prompt"));
  if (r.stop_token_count > 0) HOCKET_TRY_VOID(need(r.stop_tokens, "stop_tokens"));
  if (r.stop_text_count > 0) HOCKET_TRY_VOID(need(r.stop_texts, "stop_texts"));
  if (r.bias_count > 0) HOCKET_TRY_VOID(need(r.bias_tokens, "bias_tokens"));
  if (r.bias_count > 0) HOCKET_TRY_VOID(need(r.bias, "bias"));
  out.prompt = token_ids(r.prompt, r.prompt_count);
  out.sampling.stop_ids = token_ids(r.stop_tokens, r.stop_token_count);
  for (size_t i = 0; i < r.stop_text_count; ++i) {
    HOCKET_TRY_VOID(need(r.stop_texts[i], "stop_texts[]"));
    out.sampling.stop.emplace_back(r.stop_texts[i]);
  }
  std::vector<LogitBias::Entry> biases;
  for (size_t i = 0; i < r.bias_count; ++i)
    biases.emplace_back(TokenId{r.bias_tokens[i]}, r.bias[i]);
  out.sampling.logit_bias = LogitBias(std::move(biases));
  return {};
}

int finish_code(const TextEnding* ending) {
  if (ending == nullptr) return HOCKET_GOES_ON;
  switch (ending->finish) {
    case FinishReason::stop:
      return HOCKET_STOP;
    case FinishReason::length:
      return HOCKET_LENGTH;
    case FinishReason::abort:
      return HOCKET_CANCELLED;
    case FinishReason::none:
    case FinishReason::error:
      break;
  }
  return HOCKET_FAILED;
}

void fill_ending(const TextEnding& ending, hocket_event& out) {
  out.prompt_tokens = ending.prompt_tokens;
  out.cached_tokens = ending.cached_tokens;
  out.generated_tokens = ending.generated_tokens;
  out.stop_token = value(ending.stop_token);
  out.stop_text = ending.stop_text ? ending.stop_text->c_str() : nullptr;
  if (out.finish != HOCKET_FAILED) return;
  out.error = static_cast<int32_t>(ending.error.code);
  out.error_message = ending.error.message.c_str();
  out.error_fix = ending.error.fix.c_str();
}

}  // namespace

std::vector<TokenId> token_ids(const int32_t* ids, size_t count) {
  std::vector<TokenId> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = TokenId{ids[i]};
  return out;
}

hocket_request default_request(const OfflineEngine& engine) {
  const SamplingParams s = engine.default_sampling();
  hocket_request r{};
  r.struct_size = sizeof r;
  r.temperature = s.temperature;
  r.top_p = s.top_p;
  r.min_p = s.min_p;
  r.top_k = s.top_k;
  r.repetition_penalty = s.repetition_penalty;
  r.seed = s.seed;
  r.logprobs = -1;
  r.priority = HOCKET_NO_PRIORITY;
  return r;
}

Result<TextRequest> read_request(const OfflineEngine& engine, const hocket_request* theirs) {
  HOCKET_TRY(const size_t size, size_of_callers(theirs, "request"));
  hocket_request r = default_request(engine);
  std::memcpy(&r, theirs, size);
  TextRequest out;
  out.special = r.keep_special_tokens != 0 ? SpecialTokens::keep : SpecialTokens::skip;
  SamplingParams& s = out.sampling;
  s.max_new_tokens = r.max_new_tokens;
  s.min_new_tokens = r.min_new_tokens;
  s.temperature = r.temperature;
  s.top_p = r.top_p;
  s.min_p = r.min_p;
  s.frequency_penalty = r.frequency_penalty;
  s.presence_penalty = r.presence_penalty;
  s.repetition_penalty = r.repetition_penalty;
  s.top_k = r.top_k;
  s.ignore_eos = r.ignore_eos != 0;
  s.seed = r.seed;
  s.num_top_logprobs = r.logprobs;
  if (r.priority != HOCKET_NO_PRIORITY) out.priority = r.priority;
  HOCKET_TRY(out.reasoning_start, read_reasoning_start(r.reasoning));
  HOCKET_TRY_VOID(read_lists(r, out));
  if (r.grammar_kind == HOCKET_FREE_TEXT && r.grammar == nullptr) return out;
  HOCKET_TRY_VOID(need(r.grammar, "grammar"));
  HOCKET_TRY(s.grammar, read_grammar(r.grammar_kind, r.grammar));
  return out;
}

bool HandlerCaller::operator()(const TextEvent& event) {
  hocket_event out{};
  out.struct_size = sizeof out;
  out.request = value(event.id);
  out.token = value(event.token);
  out.finish = finish_code(event.ending);
  text_ = event.text;
  out.text = text_.c_str();
  out.text_length = text_.size();
  out.logprob = std::numeric_limits<float>::quiet_NaN();
  out.stop_token = -1;
  if (event.logprobs != nullptr) fill_logprobs(*event.logprobs, out);
  if (event.ending != nullptr) fill_ending(*event.ending, out);
  return handler_(&out, user_) == 0;
}

void HandlerCaller::fill_logprobs(const PositionLogprobs& logprobs, hocket_event& out) {
  top_tokens_.clear();
  top_logprobs_.clear();
  for (const TokenLogprob& one : logprobs.top) {
    top_tokens_.push_back(value(one.token));
    top_logprobs_.push_back(one.logprob);
  }
  out.logprob = logprobs.logprob;
  out.top_count = static_cast<int32_t>(top_tokens_.size());
  out.top_tokens = top_tokens_.data();
  out.top_logprobs = top_logprobs_.data();
}

}  // namespace hocket
