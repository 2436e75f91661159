#include "engine/input_check.h"

#include <algorithm>

#include "engine/messages.h"

namespace hocket {
namespace {

Result<void> check_grammar(const SamplingParams& sampling, const EngineInfo& info) {
  if (sampling.grammar == nullptr) return {};
  const std::string& field = sampling.grammar->field;
  if (info.grammar_backend == "none")
    return fail(error(ErrorCode::invalid_request, "this server makes no structured output: {}",
                      info.why_no_grammar)
                    .with_fix("leave it out and ask for the form in the prompt")
                    .with_param(field));
  if (const size_t bytes = sampling.grammar->text.size(); bytes > kMaxGrammarBytes)
    return fail(error(ErrorCode::invalid_request, "the grammar has {} bytes, at most {} are taken",
                      bytes, kMaxGrammarBytes)
                    .with_param(field));
  return {};
}

// Checks the size of the answer: sixteen bits for each expert that a token chose.
Result<void> check_routed(const RequestInput& input, const EngineInfo& info) {
  if (!input.sampling.return_routed_experts) return {};
  const ModelConfig& model = info.model;
  if (model.moe.num_experts == 0)
    return fail(error(ErrorCode::invalid_request, "this model has no experts")
                    .with_param("return_routed_experts"));
  const auto tokens = static_cast<int64_t>(input.prompt.size()) + input.sampling.max_new_tokens;
  const int64_t ids = tokens * model.num_layers * model.moe.top_k;
  if (ids > kMaxRoutedIds)
    return fail(error(ErrorCode::invalid_request,
                      "{} tokens choose {} experts, and the ids of {} at most are returned", tokens,
                      ids, kMaxRoutedIds)
                    .with_fix("a shorter prompt or a smaller max_new_tokens")
                    .with_param("return_routed_experts"));
  return {};
}

// Counts, for each position, the token's log-probability and those of the top tokens.
Result<void> check_prompt_logprobs(const RequestInput& input) {
  const SamplingParams& sampling = input.sampling;
  if (sampling.prompt_logprobs_from < 0) return {};
  const int64_t positions =
      static_cast<int64_t>(input.prompt.size()) - sampling.prompt_logprobs_from;
  const int64_t logprobs = positions * (1 + std::max(sampling.num_top_logprobs, 0));
  if (logprobs > kMaxPromptLogprobs)
    return fail(error(ErrorCode::invalid_request,
                      "{} prompt tokens have {} log-probabilities, and {} at most are returned",
                      positions, logprobs, kMaxPromptLogprobs)
                    .with_fix("a shorter prompt, a later start or fewer top log-probabilities")
                    .with_param("logprobs"));
  return {};
}

}  // namespace

Result<void> check_input(const RequestInput& input, const EngineInfo& info) {
  if (input.prompt.empty())
    return fail(error(ErrorCode::invalid_request, "the prompt has no tokens").with_param("prompt"));
  const int vocab_size = info.model.vocab_size;
  const auto outside = [&](TokenId token) {
    return value(token) < 0 || value(token) >= vocab_size;
  };
  const auto refuse = [&](TokenId token, const char* param) {
    return fail(error(ErrorCode::invalid_request, "token {} is outside the vocabulary of {}",
                      value(token), vocab_size)
                    .with_param(param));
  };
  const std::vector<TokenId>& placeholders = info.model.placeholder_ids;
  for (const TokenId token : input.prompt) {
    if (outside(token)) return refuse(token, "prompt");
    if (std::ranges::find(placeholders, token) != placeholders.end())
      return fail(error(ErrorCode::invalid_request,
                        "token {} stands for an image, a video or a sound, and the model is served "
                        "with text alone",
                        value(token))
                      .with_param("prompt"));
  }
  if (input.prediction != nullptr)  // its tokens become rows
    for (const TokenId token : *input.prediction)
      if (outside(token)) return refuse(token, "prediction");
  for (const auto& [token, bias] : input.sampling.logit_bias)
    if (outside(token)) return refuse(token, "logit_bias");
  for (const TokenId token : input.sampling.allowed_ids)
    if (outside(token)) return refuse(token, "allowed_token_ids");
  if (const ReasoningLimit* reasoning = input.sampling.reasoning_limit.get()) {
    for (const auto& end : reasoning->ends)
      for (const TokenId token : end)
        if (outside(token)) return refuse(token, "thinking_budget");
  }
  HOCKET_TRY_VOID(check_grammar(input.sampling, info));
  HOCKET_TRY_VOID(check_routed(input, info));
  HOCKET_TRY_VOID(check_prompt_logprobs(input));
  const int max_new = input.sampling.max_new_tokens;
  if (max_new < 1)
    return fail(
        error(ErrorCode::invalid_request, "max_new_tokens is {}, must be at least 1", max_new)
            .with_param("max_tokens"));
  const auto total = static_cast<int64_t>(input.prompt.size()) + max_new;
  if (total > info.context_length)
    return fail(error(ErrorCode::context_length_exceeded,
                      "the prompt has {} tokens and {} more are asked for, but the context is {}",
                      input.prompt.size(), max_new, info.context_length)
                    .with_fix("a shorter prompt or a smaller max_tokens"));
  return {};
}

}  // namespace hocket
