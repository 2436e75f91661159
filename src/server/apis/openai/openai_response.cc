#include "server/apis/openai/openai_response.h"

#include <fmt/format.h>

#include "core/version.h"
#include "server/apis/openai/openai_blocks.h"
#include "server/generation/answer.h"

namespace hocket {
namespace {

// Indices of the columns of log-probabilities.
constexpr size_t kTokens = 0, kLogprobs = 1, kTops = 2, kOffsets = 3;

class CompletionsFormat final : public ApiFormat {
 public:
  bool repeats_prompt_in_choices(const GenerationRequest& request) const override {
    return !request.stream;
  }
  std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                         WrittenChoices all) const override {
    WrittenChoice& written = written_of(choice, all);
    OpenaiPiece piece;
    piece.content = R"("text":"")";
    switch (next_block_kind(answer, choice, written.sent)) {
      case BlockKind::none:
        return "";
      case BlockKind::opening:
        written.sent.opening = true;
        if (answer.prepared.request.return_token_ids)
          piece.ids = ",\"prompt_token_ids\":" + ids_text(prompt_ids_of(answer, choice));
        if (!answer.prepared.request.echo && piece.ids.empty())
          return next_block(answer, choice, all);
        if (answer.prepared.request.echo) {
          piece.content = "\"text\":" + json_string(prompt_text(answer.prepared, choice.prompt));
          if (wants_logprobs(answer, choice)) {
            piece.logprobs = logprobs_text(answer, choice, written.prompt_columns, {});
            written.prompt_columns.clear();
          }
        }
        break;
      case BlockKind::text:
        piece.content = "\"text\":" + new_text(answer, choice, written.sent);
        if (wants_logprobs(answer, choice)) {
          piece.logprobs = logprobs_text(answer, choice, {}, written.columns);
          written.columns.clear();
          written.sent.logprobs = choice.num_shown;
        }
        piece.ids = token_ids_note(answer, choice, written.sent);
        break;
      case BlockKind::end:
        written.sent.end = true;
        break;
    }
    return openai_block(answer, choice, all, kObject, piece);
  }

  std::string closing_block(const Answer& answer) const override {
    return openai_usage_block(answer, kObject);
  }

  std::string whole(const Answer& answer, WrittenChoices all) const override {
    std::string choices;
    for (const ChoiceAnswer& choice : answer.choices) {
      const WrittenChoice& written = written_of(choice, all);
      const std::string echo =
          answer.prepared.request.echo ? prompt_text(answer.prepared, choice.prompt) : "";
      const std::string logprobs =
          wants_logprobs(answer, choice)
              ? logprobs_text(answer, choice, written.prompt_columns, written.columns)
              : "null";
      choices += fmt::format(
          R"({}{{"index":{},"text":{},"logprobs":{},"finish_reason":{},"matched_stop":{})",
          choices.empty() ? "" : ",", choice.index, json_string(echo + choice.text), logprobs,
          to_text(finish_reason_json(choice.finish)), to_text(matched_stop_json(choice)));
      if (answer.prepared.request.return_token_ids)
        choices += ",\"token_ids\":" + ids_text(choice.ids) +
                   ",\"prompt_token_ids\":" + ids_text(prompt_ids_of(answer, choice));
      choices += '}';
    }
    return openai_whole(answer, kObject, choices);
  }

  void write_position(const Answer& answer, const ChoiceAnswer& choice, LogprobColumns& to,
                      TokenId id, const PositionLogprobs* found) const override {
    const Tokenizer& tokenizer = *answer.prepared.model.tokenizer;
    to.add(kTokens, json_string(token_text(tokenizer, id)));
    to.add(kOffsets, std::to_string(to.num_chars));
    to.num_chars += num_chars(tokenizer.token_bytes(id));
    to.add(kLogprobs, found != nullptr ? to_text(finite_logprob(found->logprob)) : "null");
    if (num_top(answer, choice) == 0) return;
    if (found == nullptr) return to.add(kTops, "null");
    Json top = Json::object();
    for (const TokenLogprob& t : found->top) {
      const std::string text = token_text(tokenizer, t.token);
      if (!top.contains(text)) top[text] = finite_logprob(t.logprob);
    }
    to.add(kTops, to_text(top));
  }

 private:
  static constexpr std::string_view kObject = "text_completion";

  static const std::vector<TokenId>& prompt_ids_of(const Answer& answer,
                                                   const ChoiceAnswer& choice) {
    return answer.prepared.prompts[static_cast<size_t>(choice.prompt)];
  }
  static int num_top(const Answer& answer, const ChoiceAnswer& choice) {
    return answer.prepared.request.prompts[static_cast<size_t>(choice.prompt)]
        .sampling.num_top_logprobs;
  }
  static std::string logprobs_text(const Answer& answer, const ChoiceAnswer& choice,
                                   const LogprobColumns& first, const LogprobColumns& then) {
    const std::string tops =
        num_top(answer, choice) > 0 ? column_text(first, then, kTops) : std::string("null");
    return fmt::format(R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{},"text_offset":{}}})",
                       column_text(first, then, kTokens), column_text(first, then, kLogprobs), tops,
                       column_text(first, then, kOffsets));
  }
};

}  // namespace

std::string system_fingerprint(const EngineInfo& info) {
  return fmt::format("hocket-{}-{}", kVersion, form_of(info));
}

const ApiFormat& completions_format() {
  static const CompletionsFormat format;
  return format;
}

}  // namespace hocket
