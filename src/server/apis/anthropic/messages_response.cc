#include "server/apis/anthropic/messages_response.h"

#include <fmt/format.h>

#include "server/generation/part_emitter.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

using Kind = AnswerEvent::Kind;

bool calls_tools(const ChoiceAnswer& choice) {
  for (const AnswerEvent& event : choice.events)
    if (event.kind == Kind::call_end) return true;
  return false;
}

// Returns the stop sequence that ended the answer; null if something else ended it.
const std::string* matched_sequence(const ChoiceAnswer& choice) {
  return std::get_if<std::string>(&choice.matched_stop);
}

Json stop_reason(const ChoiceAnswer& choice) {
  switch (choice.finish) {
    case FinishReason::none:
      return nullptr;
    case FinishReason::length:
      return "max_tokens";
    case FinishReason::stop:
      if (matched_sequence(choice) != nullptr) return "stop_sequence";
      return calls_tools(choice) ? "tool_use" : "end_turn";
    case FinishReason::abort:
    case FinishReason::error:
      break;
  }
  return "abort";
}

Json stop_sequence(const ChoiceAnswer& choice) {
  const std::string* sequence = matched_sequence(choice);
  return sequence != nullptr ? Json(*sequence) : Json();
}

// As in Anthropic's API, input_tokens leaves out cached tokens. Their number is known when the
// answer ends. Their tiers are a field beside theirs, which its clients pass over.
Json anthropic_usage(const Answer& answer) {
  const ChoiceAnswer& choice = answer.choices.front();
  TokensByTier cached;
  if (choice.ended) cached.add(choice);
  Json usage = {{"input_tokens", std::ssize(answer.prepared.prompts.front()) - cached.total},
                {"cache_creation_input_tokens", 0},
                {"cache_read_input_tokens", cached.total},
                {"output_tokens", choice.ids.size()}};
  cached.write_tiers(usage);
  if (choice.recomputed_tokens > 0) usage["recomputed_tokens"] = choice.recomputed_tokens;
  return usage;
}

Json message_json(const Answer& answer, Json content) {
  const ChoiceAnswer& choice = answer.choices.front();
  return {{"id", answer.prepared.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", answer.prepared.model.info->served_model_name},
          {"content", std::move(content)},
          {"stop_reason", stop_reason(choice)},
          {"stop_sequence", stop_sequence(choice)},
          {"usage", anthropic_usage(answer)}};
}

// Returns a block as it is before its first piece.
Json empty_block(const AnswerEvent& first) {
  switch (first.kind) {
    case Kind::reasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case Kind::call:
      return {
          {"type", "tool_use"}, {"id", first.id}, {"name", first.name}, {"input", Json::object()}};
    default:
      return {{"type", "text"}, {"text", ""}};
  }
}

class BlockList final : public PartSink {
 public:
  Json blocks = Json::array();

  void begin(const AnswerEvent&, int) override {}
  void piece(const AnswerEvent&, int, std::string_view) override {}
  void end(const AnswerEvent& first, int, std::string_view text, PartEnd how) override {
    Json block = empty_block(first);
    if (first.kind == Kind::call) {
      if (how != PartEnd::whole) return;  // the text of the broken call follows as a text block
      auto input = parse_json(text);
      if (input && input->is_object()) block["input"] = *std::move(input);
    } else {
      block[first.kind == Kind::reasoning ? "thinking" : "text"] = text;
    }
    blocks.push_back(std::move(block));
  }
};

class MessageEventWriter final : public PartSink {
 public:
  std::string out;

  void add(std::string_view type, std::string_view rest) {
    append_sse_event(out, type, fmt::format(R"({{"type":"{}"{}}})", type, rest));
  }
  void begin(const AnswerEvent& first, int index) override {
    add("content_block_start",
        fmt::format(R"(,"index":{},"content_block":{})", index, to_text(empty_block(first))));
  }
  void piece(const AnswerEvent& first, int index, std::string_view text) override {
    const auto [type, member] =
        first.kind == Kind::reasoning ? std::pair("thinking_delta", "thinking")
        : first.kind == Kind::call    ? std::pair("input_json_delta", "partial_json")
                                      : std::pair("text_delta", "text");
    add("content_block_delta", fmt::format(R"(,"index":{},"delta":{{"type":"{}","{}":{}}})", index,
                                           type, member, json_string(text)));
  }
  void end(const AnswerEvent&, int index, std::string_view, PartEnd) override {
    add("content_block_stop", fmt::format(R"(,"index":{})", index));
  }
};

class MessagesFormat final : public ApiFormat {
 public:
  StreamStyle style() const override { return StreamStyle::named; }
  bool reads_events() const override { return true; }

  std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                         WrittenChoices written) const override {
    StreamCursor& sent = written_of(choice, written).sent;
    MessageEventWriter events;
    if (!sent.opening) {
      sent.opening = true;
      Json begun = message_json(answer, Json::array());
      begun.update({{"stop_reason", nullptr}, {"stop_sequence", nullptr}});
      events.add("message_start", ",\"message\":" + to_text(begun));
    }
    emit_new_parts(choice, sent, events);
    if (choice.ended && !sent.end) {
      sent.end = true;
      const Json delta = {{"stop_reason", stop_reason(choice)},
                          {"stop_sequence", stop_sequence(choice)}};
      events.add("message_delta",
                 fmt::format(R"(,"delta":{},"usage":{},"timings":{})", to_text(delta),
                             to_text(anthropic_usage(answer)), to_text(timings_json(answer))));
      events.add("message_stop", "");
    }
    return std::move(events.out);
  }
  std::string closing_block(const Answer&) const override { return ""; }

  std::string whole(const Answer& answer, WrittenChoices) const override {
    BlockList list;
    emit_all_parts(answer.choices.front(), list);
    Json message = message_json(answer, std::move(list.blocks));
    message["timings"] = timings_json(answer);
    return to_text(message);
  }
};

}  // namespace

const ApiFormat& messages_format() {
  static const MessagesFormat format;
  return format;
}

}  // namespace hocket
