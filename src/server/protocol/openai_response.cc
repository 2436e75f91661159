#include "server/protocol/openai_response.h"

#include <fmt/format.h>

#include "core/version.h"
#include "server/protocol/answer.h"
#include "server/protocol/openai_blocks.h"

namespace hocket {
namespace {

// tokens, token_logprobs, top_logprobs, text_offset: columns that grow token by token.
class LogprobColumns {
 public:
  explicit LogprobColumns(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(TokenId id, const PositionLogprobs* position, size_t& chars) {
    tokens_.push_back(token_text(tokenizer_, id));
    offsets_.push_back(chars);
    chars += num_chars(tokenizer_.token_bytes(id));
    if (position == nullptr) {
      logprobs_.push_back(nullptr);
      tops_.push_back(nullptr);
      return;
    }
    logprobs_.push_back(finite_logprob(position->logprob));
    Json top = Json::object();
    for (const TokenLogprob& t : position->top) {
      const std::string text = token_text(tokenizer_, t.token);
      if (!top.contains(text)) top[text] = finite_logprob(t.logprob);
    }
    tops_.push_back(std::move(top));
  }
  Json take(int num_top) {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", num_top > 0 ? std::move(tops_) : Json()},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(),
       offsets_ = Json::array();
};

class CompletionsForm final : public AnswerForm {
 public:
  std::string next_block(const Answer& answer, ChoiceAnswer& choice) const override {
    OpenaiPiece piece;
    piece.content = R"("text":"")";
    switch (next_part(answer, choice)) {
      case StreamPart::none:
        return "";
      case StreamPart::opening:
        choice.sent.opening = true;
        if (answer.request.return_token_ids)
          piece.ids = ",\"prompt_token_ids\":" + to_text(ids_json(prompt_ids_of(answer, choice)));
        if (!answer.request.echo && piece.ids.empty()) return next_block(answer, choice);
        if (answer.request.echo) {
          piece.content = "\"text\":" + json_string(prompt_text(answer, choice.prompt));
          if (wants_logprobs(answer, choice))
            piece.logprobs = to_text(echo_json(answer, choice, choice.sent.chars));
        }
        break;
      case StreamPart::text:
        piece.content = "\"text\":" + new_text(answer, choice);
        if (wants_logprobs(answer, choice)) {
          LogprobColumns columns(*answer.model.tokenizer);
          add_tokens(columns, choice, choice.sent.logprobs, choice.sent.chars);
          choice.sent.logprobs = choice.num_shown;
          piece.logprobs = to_text(columns.take(num_top(answer, choice)));
        }
        piece.ids = token_ids_note(answer, choice);
        break;
      case StreamPart::end:
        choice.sent.end = true;
        break;
    }
    return openai_block(answer, choice, kObject, piece);
  }

  std::string closing_block(const Answer& answer) const override {
    return openai_usage_block(answer, kObject);
  }

  std::string whole(const Answer& answer) const override {
    Json body = openai_head(answer, kObject);
    for (const ChoiceAnswer& choice : answer.choices) {
      const bool echo = answer.request.echo;
      Json one = {{"index", choice.index},
                  {"text", (echo ? prompt_text(answer, choice.prompt) : "") + choice.text},
                  {"logprobs", nullptr},
                  {"finish_reason", finish_reason_json(choice.finish)},
                  {"matched_stop", matched_stop_json(choice)}};
      if (wants_logprobs(answer, choice)) {
        LogprobColumns columns(*answer.model.tokenizer);
        size_t chars = 0;
        if (echo) add_prompt(columns, answer, choice, chars);
        add_tokens(columns, choice, 0, chars);
        one["logprobs"] = columns.take(num_top(answer, choice));
      }
      if (answer.request.return_token_ids) {
        one["token_ids"] = ids_json(choice.ids);
        one["prompt_token_ids"] = ids_json(prompt_ids_of(answer, choice));
      }
      body["choices"].push_back(std::move(one));
    }
    return to_text(openai_closing(answer, std::move(body)));
  }

 private:
  static constexpr std::string_view kObject = "text_completion";

  static const std::vector<TokenId>& prompt_ids_of(const Answer& answer,
                                                   const ChoiceAnswer& choice) {
    return answer.prompts[static_cast<size_t>(choice.prompt)];
  }
  static int num_top(const Answer& answer, const ChoiceAnswer& choice) {
    return answer.request.prompts[static_cast<size_t>(choice.prompt)].sampling.num_top_logprobs;
  }
  static void add_tokens(LogprobColumns& columns, const ChoiceAnswer& choice, size_t from,
                         size_t& chars) {
    for (size_t i = from; i < choice.num_shown; ++i)
      columns.add(choice.ids[i], &choice.logprobs[i], chars);
  }
  static void add_prompt(LogprobColumns& columns, const Answer& answer, const ChoiceAnswer& choice,
                         size_t& chars) {
    const std::vector<TokenId>& ids = prompt_ids_of(answer, choice);
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool known = i > 0 && i < choice.prompt_logprobs.size();
      columns.add(ids[i], known ? &choice.prompt_logprobs[i] : nullptr, chars);
    }
  }
  static Json echo_json(const Answer& answer, const ChoiceAnswer& choice, size_t& chars) {
    LogprobColumns columns(*answer.model.tokenizer);
    add_prompt(columns, answer, choice, chars);
    return columns.take(num_top(answer, choice));
  }
};

}  // namespace

std::string system_fingerprint(const EngineInfo& info) {
  return fmt::format("hocket-{}-{}", kVersion, form_of(info));
}

const AnswerForm& completions_form() {
  static const CompletionsForm form;
  return form;
}

}  // namespace hocket
