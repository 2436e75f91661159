#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/version.h"
#include "server/answer.h"

namespace hocket {
namespace {

Json bytes_json(std::string_view bytes) {
  Json out = Json::array();
  for (const unsigned char c : bytes) out.push_back(c);
  return out;
}

bool wants_logprobs(const Answer& answer, const ChoiceAnswer& choice) {
  return answer.request.prompts[static_cast<size_t>(choice.prompt)].sampling.num_top_logprobs >= 0;
}

// With log-probabilities a stream moves by whole tokens, so that each block's entries are its text.
size_t sendable(const Answer& answer, const ChoiceAnswer& choice) {
  return wants_logprobs(answer, choice) ? choice.shown_bytes : choice.text.size();
}

// What OpenAI adds to every block of a stream whose usage is wanted.
std::string usage_note(const Answer& answer) {
  if (answer.request.continuous_usage) return ",\"usage\":" + to_text(usage_json(answer));
  return answer.request.include_usage ? ",\"usage\":null" : "";
}

bool all_told(const Answer& answer) {
  return std::ranges::all_of(answer.choices, [](const auto& c) { return c.sent.end; });
}

// Without a usage block the times come with the last choice's end.
std::string end_note(const Answer& answer) {
  if (answer.request.include_usage || !all_told(answer)) return "";
  return ",\"timings\":" + to_text(timings_json(answer));
}

// The state a stream's block has to tell: how it begins, what is new, how it ends.
enum class Part { none, opening, text, end };

Part next_part(const Answer& answer, const ChoiceAnswer& choice) {
  const auto& sent = choice.sent;
  if (!sent.opening) return Part::opening;
  const bool new_logprobs = wants_logprobs(answer, choice) && choice.num_shown > sent.logprobs;
  const bool new_ids = answer.request.return_token_ids && choice.ids.size() > sent.ids;
  if (sendable(answer, choice) > sent.text || new_logprobs || new_ids) return Part::text;
  return choice.ended && !sent.end ? Part::end : Part::none;
}

std::string token_ids_note(const Answer& answer, ChoiceAnswer& choice) {
  if (!answer.request.return_token_ids) return "";
  const auto fresh = std::span(choice.ids).subspan(choice.sent.ids);
  choice.sent.ids = choice.ids.size();
  return ",\"token_ids\":" + to_text(ids_json(fresh));
}

std::string end_of_choice(const ChoiceAnswer& choice) {
  return fmt::format(R"("finish_reason":{},"matched_stop":{})",
                     to_text(finish_reason_json(choice.finish)),
                     to_text(matched_stop_json(choice)));
}

std::string new_text(const Answer& answer, ChoiceAnswer& choice) {
  const size_t end = sendable(answer, choice);
  const std::string_view text =
      std::string_view(choice.text).substr(choice.sent.text, end - choice.sent.text);
  choice.sent.text = end;
  return json_string(text);
}

Json closing_json(const Answer& answer, Json&& body) {
  body["usage"] = usage_json(answer);
  body["timings"] = timings_json(answer);
  return std::move(body);
}

Json head_json(const Answer& answer, std::string_view object) {
  return {{"id", answer.id},
          {"object", object},
          {"created", answer.created},
          {"model", answer.model.info->served_model_name},
          {"system_fingerprint", system_fingerprint(*answer.model.info)},
          {"choices", Json::array()}};
}

// What a block of a stream says of one choice.
struct Piece {
  std::string content;  // the member that holds the text: "delta" or "text"
  std::string logprobs = "null";
  std::string ids;        // notes, each with a comma before it
  std::string of_answer;  // the same, beside the choices
};

std::string block(const Answer& answer, const ChoiceAnswer& choice, std::string_view object,
                  const Piece& piece) {
  const bool end = choice.sent.end;
  const std::string said = fmt::format(
      R"({{"index":{},{},"logprobs":{},{}{}}})", choice.index, piece.content, piece.logprobs,
      end ? end_of_choice(choice) : R"("finish_reason":null)", piece.ids);
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},)"
                     R"("system_fingerprint":"{}","choices":[{}]{}{}{}}})",
                     json_string(answer.id), object, answer.created,
                     json_string(answer.model.info->served_model_name),
                     system_fingerprint(*answer.model.info), said, usage_note(answer),
                     end ? end_note(answer) : "", piece.of_answer);
}

std::string usage_block(const Answer& answer, std::string_view object) {
  if (!answer.request.include_usage) return "";
  return to_text(closing_json(answer, head_json(answer, object)));
}

class ChatForm final : public AnswerForm {
 public:
  std::string next_block(const Answer& answer, ChoiceAnswer& choice) const override {
    Piece piece;
    piece.content = R"("delta":{})";
    switch (next_part(answer, choice)) {
      case Part::none:
        return "";
      case Part::opening:
        choice.sent.opening = true;
        piece.content = R"("delta":{"role":"assistant","content":""})";
        if (answer.request.return_token_ids)
          piece.of_answer = ",\"prompt_token_ids\":" + to_text(ids_json(answer.prompts[0]));
        break;
      case Part::text:
        piece.content = fmt::format(R"("delta":{{"content":{}}})", new_text(answer, choice));
        if (wants_logprobs(answer, choice)) {
          piece.logprobs = to_text(logprobs_json(answer, choice, choice.sent.logprobs));
          choice.sent.logprobs = choice.num_shown;
        }
        piece.ids = token_ids_note(answer, choice);
        break;
      case Part::end:
        choice.sent.end = true;
        break;
    }
    return block(answer, choice, kChunk, piece);
  }

  std::string closing_block(const Answer& answer) const override {
    return usage_block(answer, kChunk);
  }

  std::string whole(const Answer& answer) const override {
    Json body = head_json(answer, "chat.completion");
    for (const ChoiceAnswer& choice : answer.choices) {
      Json one = {
          {"index", choice.index},
          {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
          {"logprobs", wants_logprobs(answer, choice) ? logprobs_json(answer, choice, 0) : Json()},
          {"finish_reason", finish_reason_json(choice.finish)},
          {"matched_stop", matched_stop_json(choice)}};
      if (answer.request.return_token_ids) one["token_ids"] = ids_json(choice.ids);
      body["choices"].push_back(std::move(one));
    }
    if (answer.request.return_token_ids) body["prompt_token_ids"] = ids_json(answer.prompts[0]);
    return to_text(closing_json(answer, std::move(body)));
  }

 private:
  static constexpr std::string_view kChunk = "chat.completion.chunk";

  static Json logprobs_json(const Answer& answer, const ChoiceAnswer& choice, size_t from) {
    const Tokenizer& tokenizer = *answer.model.tokenizer;
    const auto entry = [&](TokenId id, float logprob) {
      return Json{{"token", token_text(tokenizer, id)},
                  {"logprob", finite_logprob(logprob)},
                  {"bytes", bytes_json(tokenizer.token_bytes(id))}};
    };
    Json content = Json::array();
    for (size_t i = from; i < choice.num_shown; ++i) {
      const PositionLogprobs& position = choice.logprobs[i];
      Json one = entry(choice.ids[i], position.logprob);
      Json& top = one["top_logprobs"] = Json::array();
      for (const TokenLogprob& t : position.top) top.push_back(entry(t.token, t.logprob));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
};

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
    Piece piece;
    piece.content = R"("text":"")";
    switch (next_part(answer, choice)) {
      case Part::none:
        return "";
      case Part::opening:
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
      case Part::text:
        piece.content = "\"text\":" + new_text(answer, choice);
        if (wants_logprobs(answer, choice)) {
          LogprobColumns columns(*answer.model.tokenizer);
          add_tokens(columns, choice, choice.sent.logprobs, choice.sent.chars);
          choice.sent.logprobs = choice.num_shown;
          piece.logprobs = to_text(columns.take(num_top(answer, choice)));
        }
        piece.ids = token_ids_note(answer, choice);
        break;
      case Part::end:
        choice.sent.end = true;
        break;
    }
    return block(answer, choice, kObject, piece);
  }

  std::string closing_block(const Answer& answer) const override {
    return usage_block(answer, kObject);
  }

  std::string whole(const Answer& answer) const override {
    Json body = head_json(answer, kObject);
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
    return to_text(closing_json(answer, std::move(body)));
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

const AnswerForm& chat_form() {
  static const ChatForm form;
  return form;
}

const AnswerForm& completions_form() {
  static const CompletionsForm form;
  return form;
}

}  // namespace hocket
