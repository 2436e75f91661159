#include "server/apis/openai/openai_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/apis/openai/openai_response.h"

namespace hocket {
namespace {

// With log-probabilities a stream advances by whole tokens, so that each block's entries match its
// text.
size_t sendable(const Answer& answer, const ChoiceAnswer& choice) {
  return wants_logprobs(answer, choice) ? choice.shown_bytes : choice.text.size();
}

// Returns the member `usage` that each block of a stream has if usage is asked for.
std::string usage_note(const Answer& answer) {
  if (answer.prepared.request.continuous_usage) return ",\"usage\":" + to_text(usage_json(answer));
  return answer.prepared.request.include_usage ? ",\"usage\":null" : "";
}

bool all_ends_sent(WrittenChoices written) {
  return std::ranges::all_of(written, [](const auto& w) { return w.sent.end; });
}

// Returns the timings, with the end of the last choice, if no usage block follows that has them.
std::string end_note(const Answer& answer, WrittenChoices written) {
  if (answer.prepared.request.include_usage || !all_ends_sent(written)) return "";
  return ",\"timings\":" + to_text(timings_json(answer));
}

std::string end_of_choice(const ChoiceAnswer& choice) {
  return fmt::format(R"("finish_reason":{},"matched_stop":{})",
                     to_text(openai_finish_reason(choice)), to_text(matched_stop_json(choice)));
}

}  // namespace

bool wants_logprobs(const Answer& answer, const ChoiceAnswer& choice) {
  return answer.prepared.request.prompts[static_cast<size_t>(choice.prompt)]
             .sampling.num_top_logprobs >= 0;
}

bool has_new_tokens(const Answer& answer, const ChoiceAnswer& choice, const StreamCursor& sent) {
  const bool logprobs = wants_logprobs(answer, choice) && choice.num_shown > sent.logprobs;
  return logprobs || (answer.prepared.request.return_token_ids && choice.ids.size() > sent.ids);
}

Json openai_finish_reason(const ChoiceAnswer& choice) {
  if (choice.finish == FinishReason::stop && num_calls(choice) > 0) return "tool_calls";
  return finish_reason_json(choice.finish);
}

BlockKind next_block_kind(const Answer& answer, const ChoiceAnswer& choice,
                          const StreamCursor& sent) {
  if (!sent.opening) return BlockKind::opening;
  if (sendable(answer, choice) > sent.text || has_new_tokens(answer, choice, sent))
    return BlockKind::text;
  return choice.ended && !sent.end ? BlockKind::end : BlockKind::none;
}

std::string token_ids_note(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent) {
  if (!answer.prepared.request.return_token_ids) return "";
  const auto fresh = std::span(choice.ids).subspan(sent.ids);
  sent.ids = choice.ids.size();
  return ",\"token_ids\":" + ids_text(fresh);
}

std::string new_text(const Answer& answer, const ChoiceAnswer& choice, StreamCursor& sent) {
  const size_t end = sendable(answer, choice);
  const std::string_view text = std::string_view(choice.text).substr(sent.text, end - sent.text);
  sent.text = end;
  return json_string(text);
}

Json openai_closing(const Answer& answer, Json&& body) {
  body["usage"] = usage_json(answer);
  body["timings"] = timings_json(answer);
  return std::move(body);
}

Json openai_head(const Answer& answer, std::string_view object) {
  return {{"id", answer.prepared.id},
          {"object", object},
          {"created", answer.prepared.created},
          {"model", answer.prepared.model.info->served_model_name},
          {"system_fingerprint", system_fingerprint(*answer.prepared.model.info)},
          {"choices", Json::array()}};
}

std::string openai_whole(const Answer& answer, std::string_view object, std::string_view choices,
                         std::string_view more) {
  std::string text = to_text(openai_head(answer, object));
  text.resize(text.size() - std::string_view("]}").size());
  text.append(choices).append("]").append(more);
  return text += fmt::format(R"(,"usage":{},"timings":{}}})", to_text(usage_json(answer)),
                             to_text(timings_json(answer)));
}

std::string openai_block(const Answer& answer, const ChoiceAnswer& choice, WrittenChoices written,
                         std::string_view object, const OpenaiPiece& piece) {
  const bool end = written_of(choice, written).sent.end;
  const std::string head = fmt::format(
      R"({{"index":{},{},"logprobs":{},{}{}}})", choice.index, piece.content, piece.logprobs,
      end ? end_of_choice(choice) : R"("finish_reason":null)", piece.ids);
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},)"
                     R"("system_fingerprint":"{}","choices":[{}]{}{}{}}})",
                     json_string(answer.prepared.id), object, answer.prepared.created,
                     json_string(answer.prepared.model.info->served_model_name),
                     system_fingerprint(*answer.prepared.model.info), head, usage_note(answer),
                     end ? end_note(answer, written) : "", piece.of_answer);
}

std::string openai_usage_block(const Answer& answer, std::string_view object) {
  if (!answer.prepared.request.include_usage) return "";
  return to_text(openai_closing(answer, openai_head(answer, object)));
}

}  // namespace hocket
