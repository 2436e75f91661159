// Writes answers of /v1/chat/completions: message and delta, with reasoning and tool calls.
#include <fmt/format.h>

#include "server/apis/openai/openai_blocks.h"
#include "server/apis/openai/openai_response.h"

namespace hocket {
namespace {

using Kind = AnswerEvent::Kind;

constexpr std::string_view kChunk = "chat.completion.chunk";

Json bytes_json(std::string_view bytes) {
  Json out = Json::array();
  for (const unsigned char c : bytes) out.push_back(c);
  return out;
}

Json logprob_json(const Tokenizer& tokenizer, TokenId id, float logprob) {
  return {{"token", token_text(tokenizer, id)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", bytes_json(tokenizer.token_bytes(id))}};
}

std::string logprobs_text(const WrittenChoice& written) {
  return fmt::format(R"({{"content":{},"refusal":null}})", column_text(written.columns, 0));
}

// Returns the names of the fields that hold the reasoning.
std::vector<std::string_view> reasoning_names(const Answer& answer) {
  switch (answer.prepared.model.formats->reasoning_field) {
    case ReasoningField::reasoning_content:
      return {"reasoning_content"};
    case ReasoningField::reasoning:
      return {"reasoning"};
    case ReasoningField::both:
      break;
  }
  return {"reasoning_content", "reasoning"};
}

// Returns the delta for a piece of the event's text.
std::string delta_of(const Answer& answer, const AnswerEvent& event, std::string_view piece) {
  if (event.kind == AnswerEvent::Kind::arguments)
    return fmt::format(R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})",
                       event.call, json_string(piece));
  if (event.kind == AnswerEvent::Kind::text)
    return fmt::format(R"({{"content":{}}})", json_string(piece));
  std::string fields;
  for (const std::string_view name : reasoning_names(answer))
    fields += fmt::format(R"({}"{}":{})", fields.empty() ? "" : ",", name, json_string(piece));
  return "{" + fields + "}";
}

std::string delta_of_call(const AnswerEvent& event) {
  return fmt::format(R"({{"tool_calls":[{{"index":{},"id":{},"type":"function",)"
                     R"("function":{{"name":{},"arguments":""}}}}]}})",
                     event.call, json_string(event.id), json_string(event.name));
}

// Returns the next delta of what the choice has beyond `sent`; empty if there is none.
std::string next_delta(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent) {
  const AnswerReading& reading = answer.prepared.request.reading;
  const auto pass = [&] {
    ++sent.events;
    sent.event_text = 0;
  };
  while (sent.events < choice.events.size()) {
    const AnswerEvent& event = choice.events[sent.events];
    const bool grows = sent.events + 1 == choice.events.size() && !choice.ended;
    const bool is_reasoning = event.kind == Kind::reasoning;
    if (event.kind == Kind::call) {
      pass();
      return delta_of_call(event);
    }
    if (is_reasoning && grows && !(reading.include_reasoning && reading.stream_reasoning))
      return "";
    const bool silent = event.kind == Kind::call_end || event.kind == Kind::call_broken ||
                        (is_reasoning && !reading.include_reasoning);
    const std::string_view piece =
        silent ? std::string_view() : std::string_view(event.text).substr(sent.event_text);
    if (!piece.empty()) {
      sent.event_text = event.text.size();
      return delta_of(answer, event, piece);
    }
    if (grows) return "";
    pass();
  }
  return "";
}

Json message_json(const Answer& answer, const ChoiceAnswer& choice) {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  const AnswerReading& reading = answer.prepared.request.reading;
  if (reading.plain()) return message;
  AnswerParts all;
  for (const AnswerEvent& event : choice.events) all.add(event);
  std::string content = all.text_of(AnswerPart::Kind::text);
  Json calls = Json::array();
  for (const AnswerPart& part : all.parts())
    if (part.kind == AnswerPart::Kind::call)
      calls.push_back({{"id", part.id},
                       {"type", "function"},
                       {"function", {{"name", part.name}, {"arguments", part.text}}}});
  const bool only_calls = content.empty() && !calls.empty();
  message["content"] = only_calls ? Json() : Json(std::move(content));
  const std::string reasoning = all.text_of(AnswerPart::Kind::reasoning);
  if (!reasoning.empty() && reading.include_reasoning)
    for (const std::string_view name : reasoning_names(answer))
      message[std::string(name)] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

class ChatFormat final : public ApiFormat {
 public:
  std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                         WrittenChoices all) const override {
    WrittenChoice& written = written_of(choice, all);
    OpenaiPiece piece;
    piece.content = R"("delta":{})";
    if (!written.sent.opening) {
      written.sent.opening = true;
      piece.content = R"("delta":{"role":"assistant","content":""})";
      if (answer.prepared.request.return_token_ids)
        piece.of_answer = ",\"prompt_token_ids\":" + ids_text(answer.prepared.prompts[0]);
      return openai_block(answer, choice, all, kChunk, piece);
    }
    const bool has_text = answer.prepared.request.reading.plain()
                              ? add_text(answer, choice, written.sent, piece)
                              : add_delta(answer, choice, written.sent, piece);
    if (!has_text && (!choice.ended || written.sent.end)) return "";
    if (!has_text) written.sent.end = true;
    add_tokens(answer, choice, written, piece);
    return openai_block(answer, choice, all, kChunk, piece);
  }

  std::string closing_block(const Answer& answer) const override {
    return openai_usage_block(answer, kChunk);
  }

  std::string whole(const Answer& answer, WrittenChoices all) const override {
    std::string choices;
    for (const ChoiceAnswer& choice : answer.choices) {
      choices += fmt::format(
          R"({}{{"index":{},"message":{},"logprobs":{},"finish_reason":{},"matched_stop":{})",
          choices.empty() ? "" : ",", choice.index, to_text(message_json(answer, choice)),
          wants_logprobs(answer, choice) ? logprobs_text(written_of(choice, all)) : "null",
          to_text(openai_finish_reason(choice)), to_text(matched_stop_json(choice)));
      if (answer.prepared.request.return_token_ids)
        choices += ",\"token_ids\":" + ids_text(choice.ids);
      choices += '}';
    }
    std::string prompt;
    if (answer.prepared.request.return_token_ids)
      prompt = ",\"prompt_token_ids\":" + ids_text(answer.prepared.prompts[0]);
    return openai_whole(answer, "chat.completion", choices, prompt);
  }

  void write_position(const Answer& answer, const ChoiceAnswer&, LogprobColumns& to, TokenId id,
                      const PositionLogprobs* found) const override {
    const Tokenizer& tokenizer = *answer.prepared.model.tokenizer;
    Json one = logprob_json(tokenizer, id, found->logprob);
    Json& top = one["top_logprobs"] = Json::array();
    for (const TokenLogprob& t : found->top)
      top.push_back(logprob_json(tokenizer, t.token, t.logprob));
    to.add(0, to_text(one));
  }

 private:
  // Each function adds what was not sent, and returns true if there was anything.
  static bool add_text(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent,
                       OpenaiPiece& piece) {
    if (next_block_kind(answer, choice, sent) != BlockKind::text) return false;
    piece.content = fmt::format(R"("delta":{{"content":{}}})", new_text(answer, choice, sent));
    return true;
  }
  static bool add_delta(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent,
                        OpenaiPiece& piece) {
    const std::string delta = next_delta(answer, choice, sent);
    if (!delta.empty()) piece.content = "\"delta\":" + delta;
    return !delta.empty();
  }
  // Tokens whose text is only part of a mark or of a call's frame are sent with the piece after
  // them.
  static void add_tokens(const Answer& answer, const ChoiceAnswer& choice, WrittenChoice& written,
                         OpenaiPiece& piece) {
    if (!has_new_tokens(answer, choice, written.sent)) return;
    if (wants_logprobs(answer, choice)) {
      piece.logprobs = logprobs_text(written);
      written.columns.clear();
      written.sent.logprobs = choice.num_shown;
    }
    piece.ids = token_ids_note(answer, choice, written.sent);
  }
};

}  // namespace

const ApiFormat& chat_format() {
  static const ChatFormat format;
  return format;
}

}  // namespace hocket
