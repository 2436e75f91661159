#include "server/generation/prepared_request.h"

#include <charconv>
#include <utility>

#include "core/request_bounds.h"
#include "server/generation/api.h"
#include "server/generation/structure_settling.h"
#include "server/generation/task_pool.h"

namespace hocket {
namespace {

std::string new_answer_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, fresh_seed(), fresh_seed());
}

AnswerIdentity draw_identity(const GenerationRequest& request) {
  return {
      .id = request.answer_id.empty() ? new_answer_id(request.api->id_prefix) : request.answer_id,
      .created = unix_seconds(),
      .call_seed = fresh_seed()};
}

Result<void> check_text_needs(const GenerationRequest& request, const ServedModel& model) {
  if (model.tokenizer != nullptr) return {};
  if (request.api->needs_tokenizer) return fail(no_tokenizer_error());
  for (const Prompt& prompt : request.prompts)
    if (!prompt.sampling.stop.empty()) return fail(no_tokenizer_error().with_param("stop"));
  return {};
}

// Prompt log-probabilities may begin anywhere in the prompt. At its end they are switched off.
Result<void> check_logprob_start(SamplingParams& sampling, int prompt_tokens) {
  if (sampling.prompt_logprobs_from > prompt_tokens)
    return fail(error(ErrorCode::invalid_request,
                      "logprob_start_len is {}, the prompt has {} tokens",
                      sampling.prompt_logprobs_from, prompt_tokens)
                    .with_param("logprob_start_len"));
  if (sampling.prompt_logprobs_from == prompt_tokens) sampling.prompt_logprobs_from = -1;
  return {};
}

// Returns the bytes that a prompt holds besides its tokens: its text, the copies for each of its
// answers, and the matchers that search each answer's text.
int64_t held_bytes(const Prompt& prompt) {
  int64_t copied = sizeof(RequestInput);
  for (const std::string& stop : prompt.sampling.stop)  // copied to the parameters and StopMatcher
    copied += static_cast<int64_t>(4 * sizeof(std::string) + 6 * stop.size());
  copied += std::ssize(prompt.sampling.stop_ids) * static_cast<int64_t>(sizeof(TokenId));
  if (prompt.stop_regex != nullptr) copied += StopRegexSearch::kMaxBytes;
  const auto* text = std::get_if<std::string>(&prompt.input);
  return copied * prompt.n + (text == nullptr ? 0 : std::ssize(*text));
}

// With `echo` each choice repeats its prompt as text. A prompt that was given as ids is decoded
// once for all of its choices.
Result<void> spell_echoes(PreparedRequest& prepared) {
  if (!prepared.request.echo) return {};
  for (size_t i = 0; i < prepared.prompts.size(); ++i) {
    const bool by_ids =
        std::holds_alternative<std::vector<TokenId>>(prepared.request.prompts[i].input);
    prepared.echoes.push_back(by_ids ? prompt_text(prepared, static_cast<int>(i)) : "");
    HOCKET_TRY_VOID(prepared.held.grow(std::ssize(prepared.echoes.back())));
  }
  return {};
}

// Returns the tokens of `prediction`; null if there is none. Its bound holds without drafts, too,
// so that no setting decides which requests are valid.
Result<std::shared_ptr<const std::vector<TokenId>>> predicted_ids(const GenerationRequest& request,
                                                                  const ServedModel& model) {
  if (!request.prediction) return nullptr;
  const auto of_prediction = [](Error why) {
    return fail(std::move(why).with_param("prediction"));
  };
  const auto too_long = [&] {
    return of_prediction(
        error(ErrorCode::invalid_request, "prediction has more than {} tokens", kMaxPredictedTokens)
            .with_fix("send the part of the text that the answer repeats"));
  };
  if (!model.tokenizer->check_length(*request.prediction, kMaxPredictedTokens)) return too_long();
  auto ids = model.tokenizer->encode(*request.prediction, {.add_special_tokens = false});
  if (!ids) return of_prediction(std::move(ids).error());
  if (std::ssize(*ids) > kMaxPredictedTokens) return too_long();
  return std::make_shared<const std::vector<TokenId>>(*std::move(ids));
}

}  // namespace

std::string to_header(const AnswerIdentity& identity) {
  return fmt::format("{} {} {}", identity.created, identity.call_seed, identity.id);
}

std::optional<AnswerIdentity> read_identity(std::string_view text) {
  AnswerIdentity identity;
  const auto number = [&](auto& to) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    const auto length = static_cast<size_t>(end - text.data());
    if (error != std::errc{} || length == text.size() || text[length] != ' ') return false;
    text.remove_prefix(length + 1);
    return true;
  };
  if (!number(identity.created) || !number(identity.call_seed) || text.empty()) return std::nullopt;
  identity.id = text;
  return identity;
}

AnswerIdentity identity_of(const PreparedRequest& prepared) {
  return {.id = prepared.id, .created = prepared.created, .call_seed = prepared.call_seed};
}

Result<PreparedRequest> prepare_request(GenerationRequest request, const ServedModel& model,
                                        std::shared_ptr<RequestMemory> memory,
                                        std::optional<AnswerIdentity> given) {
  HOCKET_TRY_VOID(check_text_needs(request, model));
  PreparedRequest prepared;
  prepared.model = model;
  prepared.held = HeldBytes(std::move(memory));
  for (Prompt& prompt : request.prompts) {
    TaskPool::yield_turn();
    HOCKET_TRY_VOID(prepared.held.grow(held_bytes(prompt)));
    HOCKET_TRY(std::vector<TokenId> ids, prompt_ids(prompt, request, model));
    const int num_ids = static_cast<int>(ids.size());
    const int64_t id_bytes = int64_t{num_ids} * static_cast<int64_t>(sizeof(TokenId));
    HOCKET_TRY_VOID(prepared.held.grow(id_bytes * (1 + prompt.n)));
    HOCKET_TRY_VOID(fit_to_context(prompt, num_ids, request, model));
    HOCKET_TRY_VOID(check_logprob_start(prompt.sampling, num_ids));
    HOCKET_TRY_VOID(settle_structure(prompt, ids, request.reading, model));
    prepared.prompts.push_back(std::move(ids));
  }
  HOCKET_TRY(prepared.prediction, predicted_ids(request, model));
  if (prepared.prediction != nullptr)
    HOCKET_TRY_VOID(prepared.held.grow(std::ssize(*prepared.prediction) *
                                       static_cast<int64_t>(sizeof(TokenId))));
  AnswerIdentity identity = given ? *std::move(given) : draw_identity(request);
  prepared.id = std::move(identity.id);
  prepared.created = identity.created;
  prepared.call_seed = identity.call_seed;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    Prompt& prompt = request.prompts[i];
    if (prompt.rid.empty())
      prompt.rid = request.batch ? fmt::format("{}-{}", prepared.id, i) : prepared.id;
    if (!prompt.seeded)
      prompt.sampling.seed = choice_seed(~prepared.call_seed, static_cast<int>(i));
  }
  prepared.request = std::move(request);
  HOCKET_TRY_VOID(spell_echoes(prepared));
  return prepared;
}

std::string prompt_text(const PreparedRequest& prepared, int prompt) {
  const auto i = static_cast<size_t>(prompt);
  if (const auto* text = std::get_if<std::string>(&prepared.request.prompts[i].input)) return *text;
  if (i < prepared.echoes.size()) return prepared.echoes[i];
  return prepared.model.tokenizer->decode(prepared.prompts[i], SpecialTokens::keep).value_or("");
}

}  // namespace hocket
