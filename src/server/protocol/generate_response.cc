// SGLang's /generate: text, output_ids, meta_info. A stream repeats the whole text in every block,
// as its clients expect.
#include <openssl/evp.h>

#include <algorithm>

#include "server/protocol/answer.h"

namespace hocket {
namespace {

Json finish_json(const ChoiceAnswer& choice) {
  switch (choice.finish) {
    case FinishReason::none:
      return nullptr;
    case FinishReason::stop:
      return {{"type", "stop"}, {"matched", matched_stop_json(choice)}};
    case FinishReason::length:
      return {{"type", "length"}, {"length", choice.ids.size()}};
    case FinishReason::abort:
    case FinishReason::error:
      break;
  }
  return {{"type", "abort"}, {"message", "the request was aborted"}};
}

// [logprob, id, text]; the first prompt token has no logprob, and text is null unless wanted.
class TokenRows {
 public:
  explicit TokenRows(const Answer& answer)
      : tokenizer_(answer.request.logprob_text ? answer.model.tokenizer : nullptr) {}

  Json row(TokenId id, const PositionLogprobs* position) const {
    return Json::array(
        {position ? Json(finite_logprob(position->logprob)) : Json(), value(id), text(id)});
  }
  Json top(const PositionLogprobs* position) const {
    if (position == nullptr) return nullptr;
    Json rows = Json::array();
    for (const TokenLogprob& t : position->top)
      rows.push_back(Json::array({finite_logprob(t.logprob), value(t.token), text(t.token)}));
    return rows;
  }

 private:
  Json text(TokenId id) const { return tokenizer_ ? Json(token_text(*tokenizer_, id)) : Json(); }
  const Tokenizer* tokenizer_;
};

void add_logprobs(const Answer& answer, const ChoiceAnswer& choice, Json& meta) {
  const auto p = static_cast<size_t>(choice.prompt);
  const SamplingParams& sampling = answer.request.prompts[p].sampling;
  const TokenRows rows(answer);
  const std::vector<TokenId>& prompt = answer.prompts[p];
  Json input = Json::array(), input_top = Json::array(), output = Json::array(),
       output_top = Json::array();
  if (sampling.prompt_logprobs_from >= 0) {
    const auto from = static_cast<size_t>(sampling.prompt_logprobs_from);
    for (size_t i = from; i < prompt.size(); ++i) {
      const bool known = i > 0 && i - from < choice.prompt_logprobs.size();
      const PositionLogprobs* position = known ? &choice.prompt_logprobs[i - from] : nullptr;
      input.push_back(rows.row(prompt[i], position));
      input_top.push_back(rows.top(position));
    }
  }
  for (size_t i = 0; i < std::min(choice.ids.size(), choice.logprobs.size()); ++i) {
    output.push_back(rows.row(choice.ids[i], &choice.logprobs[i]));
    output_top.push_back(rows.top(&choice.logprobs[i]));
  }
  meta["input_token_logprobs"] = std::move(input);
  meta["output_token_logprobs"] = std::move(output);
  if (sampling.num_top_logprobs == 0) return;
  meta["input_top_logprobs"] = std::move(input_top);
  meta["output_top_logprobs"] = std::move(output_top);
}

// 32-bit numbers, the lowest byte first, in base64: [tokens][layers][experts a token], as SGLang
// tells them.
std::string routed_text(const RoutedExperts& routed) {
  std::vector<unsigned char> bytes;
  bytes.reserve(4 * routed.ids.size());
  for (const uint16_t id : routed.ids)
    for (const int part : {id & 0xff, id >> 8, 0, 0}) bytes.push_back(static_cast<uint8_t>(part));
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and a zero
  text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                  bytes.data(), static_cast<int>(bytes.size()))));
  return text;
}

Json choice_json(const Answer& answer, const ChoiceAnswer& choice) {
  const auto p = static_cast<size_t>(choice.prompt);
  const Prompt& prompt = answer.request.prompts[p];
  Json meta = {{"id", prompt.rid},
               {"finish_reason", finish_json(choice)},
               {"prompt_tokens", answer.prompts[p].size()},
               {"completion_tokens", choice.ids.size()},
               {"cached_tokens", choice.cached_tokens}};
  if (choice.ended) {
    meta["e2e_latency"] = to_seconds(std::max(Duration{}, choice.times.finished - answer.received));
    meta["timings"] = timings_json(answer);
    if (choice.routed != nullptr) meta["routed_experts"] = routed_text(*choice.routed);
  }
  if (prompt.sampling.num_top_logprobs >= 0) add_logprobs(answer, choice, meta);
  return {
      {"text", choice.text}, {"output_ids", ids_json(choice.ids)}, {"meta_info", std::move(meta)}};
}

class GenerateForm final : public AnswerForm {
 public:
  std::string next_block(const Answer& answer, ChoiceAnswer& choice) const override {
    const bool news = choice.ids.size() > choice.sent.ids || choice.text.size() > choice.sent.text;
    if (choice.sent.end || (!news && !choice.ended)) return "";
    choice.sent.ids = choice.ids.size();
    choice.sent.text = choice.text.size();
    choice.sent.end = choice.ended;
    Json one = choice_json(answer, choice);
    if (is_list(answer)) one["index"] = choice.index;
    return to_text(one);
  }
  std::string closing_block(const Answer&) const override { return ""; }
  std::string whole(const Answer& answer) const override {
    if (!is_list(answer)) return to_text(choice_json(answer, answer.choices.front()));
    Json all = Json::array();
    for (const ChoiceAnswer& choice : answer.choices) all.push_back(choice_json(answer, choice));
    return to_text(all);
  }

 private:
  static bool is_list(const Answer& answer) {
    return answer.request.batch || answer.choices.size() > 1;
  }
};

}  // namespace

const AnswerForm& generate_form() {
  static const GenerateForm form;
  return form;
}

}  // namespace hocket
