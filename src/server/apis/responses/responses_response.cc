#include "server/apis/responses/responses_response.h"

#include <fmt/format.h>

#include "server/apis/responses/output_items.h"
#include "server/apis/responses/responses_request.h"
#include "server/http/error_map.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

using Kind = AnswerEvent::Kind;

const ResponsesRequest& fields_of(const GenerationRequest& request) {
  return static_cast<const ResponsesRequest&>(*request.api_fields);
}

const ResponsesRequest& asked(const Answer& answer) {
  return fields_of(answer.prepared.request);
}

std::string_view status_of(const Answer& answer, const Error* why) {
  if (why != nullptr) return "failed";
  const ChoiceAnswer& choice = answer.choices.front();
  switch (choice.ended ? choice.finish : FinishReason::none) {
    case FinishReason::none:
      return "in_progress";
    case FinishReason::stop:
      return "completed";
    case FinishReason::length:
      return "incomplete";
    case FinishReason::abort:
    case FinishReason::error:
      break;
  }
  return asked(answer).background ? "cancelled" : "incomplete";
}

Json incomplete_details(const Answer& answer, std::string_view status) {
  if (status != "incomplete") return nullptr;
  const bool long_enough = answer.choices.front().finish == FinishReason::length;
  return {{"reason", long_enough ? "max_output_tokens" : "abort"}};
}

Json error_details(const Error* why) {
  if (why == nullptr) return nullptr;
  return {{"code", "server_error"}, {"message", why->message}, {"reason", error_slug(why->code)}};
}

size_t reasoning_tokens(const Answer& answer) {
  const Json usage = usage_json(answer);
  const auto details = usage.find("completion_tokens_details");
  return details == usage.end() ? 0 : details->value("reasoning_tokens", size_t{0});
}

Json responses_usage(const Answer& answer) {
  const ChoiceAnswer& choice = answer.choices.front();
  if (!choice.ended) return nullptr;
  const size_t input = answer.prepared.prompts.front().size(), output = choice.ids.size();
  TokensByTier cached;
  cached.add(choice);
  Json details = {{"cached_tokens", cached.total}, {"cache_write_tokens", 0}};
  cached.write_tiers(details);
  if (choice.recomputed_tokens > 0) details["recomputed_tokens"] = choice.recomputed_tokens;
  return {{"input_tokens", input},
          {"input_tokens_details", std::move(details)},
          {"output_tokens", output},
          {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens(answer)}}},
          {"total_tokens", input + output}};
}

// begun: the response as it was at its beginning. now: with all that has arrived since.
enum class ResponseMoment : uint8_t { begun, now };

// `output` is the list of items, as JSON.
std::string response_text(const Answer& answer, std::string_view output, ResponseMoment moment,
                          const Error* why = nullptr) {
  const bool begun = moment == ResponseMoment::begun;
  const std::string_view status = begun ? "in_progress" : status_of(answer, why);
  std::string text =
      fmt::format(R"({{"id":{},"object":"response","created_at":{},"status":"{}","error":{},)"
                  R"("incomplete_details":{},"model":{},"output":)",
                  json_string(answer.prepared.id), answer.prepared.created, status,
                  to_text(error_details(why)), to_text(incomplete_details(answer, status)),
                  json_string(answer.prepared.model.info->served_model_name));
  text.append(output)
      .append(",\"usage\":")
      .append(begun ? "null" : to_text(responses_usage(answer)));
  text.append(asked(answer).repeated);
  if (status == "in_progress") return text += '}';
  text += fmt::format(",\"completed_at\":{}",
                      status == "completed" ? std::to_string(unix_seconds()) : "null");
  if (why == nullptr) text.append(",\"timings\":").append(to_text(timings_json(answer)));
  return text += '}';
}

// Writes events with their sequence numbers.
class ResponseEventWriter final : public PartSink {
 public:
  ResponseEventWriter(const Answer& answer, int& num_events)
      : answer_(answer), num_events_(num_events) {}
  std::string out;

  void add(std::string_view type, std::string_view rest) {
    append_sse_event(
        out, type,
        fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", type, num_events_++, rest));
  }
  void add_response(std::string_view type, const std::string& response) {
    add(type, "\"response\":" + response);
  }

  void begin(const AnswerEvent& first, int index) override {
    add("response.output_item.added", fmt::format(R"("output_index":{},"item":{})", index,
                                                  to_text(empty_item(answer_, first, index))));
    if (first.kind == Kind::call) return;
    add("response.content_part.added",
        at_content(first, index) + ",\"part\":" + to_text(content_part(first, "")));
  }

  void piece(const AnswerEvent& first, int index, std::string_view text) override {
    if (first.kind == Kind::call)
      return add("response.function_call_arguments.delta",
                 fmt::format(R"({},"delta":{})", at_item(first, index), json_string(text)));
    const char* logprobs = first.kind == Kind::reasoning ? "" : ",\"logprobs\":[]";
    add(fmt::format("response.{}.delta", text_name(first)),
        fmt::format(R"({},"delta":{}{})", at_content(first, index), json_string(text), logprobs));
  }

  void end(const AnswerEvent& first, int index, std::string_view text, PartEnd how) override {
    if (first.kind == Kind::call) {
      add("response.function_call_arguments.done",
          fmt::format(R"({},"name":{},"arguments":{})", at_item(first, index),
                      json_string(first.name), json_string(text)));
    } else {
      const char* logprobs = first.kind == Kind::reasoning ? "" : ",\"logprobs\":[]";
      add(fmt::format("response.{}.done", text_name(first)),
          fmt::format(R"({},"text":{}{})", at_content(first, index), json_string(text), logprobs));
      add("response.content_part.done",
          at_content(first, index) + ",\"part\":" + to_text(content_part(first, text)));
    }
    add("response.output_item.done",
        fmt::format(R"("output_index":{},"item":{})", index,
                    to_text(whole_item(answer_, first, index, text, how))));
  }

 private:
  static const char* text_name(const AnswerEvent& first) {
    return first.kind == Kind::reasoning ? "reasoning_text" : "output_text";
  }
  std::string at_item(const AnswerEvent& first, int index) const {
    return fmt::format(R"("item_id":"{}","output_index":{})", item_id(answer_, first, index),
                       index);
  }
  std::string at_content(const AnswerEvent& first, int index) const {
    return at_item(first, index) + ",\"content_index\":0";
  }

  const Answer& answer_;
  int& num_events_;
};

class ResponsesFormat final : public ApiFormat {
 public:
  StreamStyle style() const override { return StreamStyle::named; }
  bool reads_events() const override { return true; }
  // Kept once, and in two events.
  int64_t repeated_bytes(const GenerationRequest& request) const override {
    return 3 * std::ssize(fields_of(request).repeated);
  }

  std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                         WrittenChoices written) const override {
    StreamCursor& sent = written_of(choice, written).sent;
    ResponseEventWriter events(answer, sent.blocks);
    if (!sent.opening) {
      sent.opening = true;
      const std::string begun = response_text(answer, "[]", ResponseMoment::begun);
      events.add_response("response.created", begun);
      events.add_response("response.in_progress", begun);
    }
    emit_new_parts(choice, sent, events);
    if (choice.ended && !sent.end) {
      sent.end = true;
      events.add_response(
          fmt::format("response.{}", status_of(answer, nullptr)),
          response_text(answer, to_text(output_items(answer)), ResponseMoment::now));
    }
    return std::move(events.out);
  }
  std::string closing_block(const Answer&) const override { return ""; }

  std::string failure_block(const Answer& answer, WrittenChoices written,
                            const Error& why) const override {
    ResponseEventWriter events(answer, written.front().sent.blocks);
    events.add_response("response.failed", response_text(answer, to_text(output_items(answer)),
                                                         ResponseMoment::now, &why));
    return std::move(events.out);
  }

  std::string whole(const Answer& answer, WrittenChoices) const override {
    return response_text(answer, to_text(output_items(answer)), ResponseMoment::now);
  }

  std::string accepted(const Answer& answer) const override {
    if (!asked(answer).background) return "";
    ResponseStore& store = *asked(answer).responses;
    std::string body = response_text(answer, "[]", ResponseMoment::now);
    store.put(answer.prepared.id, record_of(answer, keep_body(answer, body), nullptr));
    return body;
  }

  void ended(const Answer& answer, const Error* why) const override {
    const ResponsesRequest& request = asked(answer);
    if (!request.store || (why != nullptr && !request.background)) return;
    ResponseStore& store = *request.responses;
    std::string output = to_text(output_items(answer));
    auto body = keep_body(answer, response_text(answer, output, ResponseMoment::now, why));
    auto record = record_of(answer, std::move(body), why ? nullptr : store.keep(std::move(output)));
    record.running = false;
    if (request.background)
      store.finish(answer.prepared.id, std::move(record));
    else
      store.put(answer.prepared.id, std::move(record));
  }

 private:
  // Counts the body and the answer's list of all earlier turns, which is long in a long
  // conversation.
  static ResponseStore::TextPtr keep_body(const Answer& answer, std::string body) {
    const ResponsesRequest& request = asked(answer);
    const size_t list = request.turns.size() * sizeof(ResponseStore::TextPtr);
    return request.responses->keep(std::move(body), list);
  }
  static ResponseStore::Record record_of(const Answer& answer, ResponseStore::TextPtr body,
                                         ResponseStore::TextPtr output) {
    const ResponsesRequest& request = asked(answer);
    ResponseStore::Record record;
    record.body = std::move(body);
    record.turns = request.turns;
    record.output = std::move(output);
    record.who = request.who;
    record.background = record.running = request.background;
    return record;
  }
};

}  // namespace

const ApiFormat& responses_format() {
  static const ResponsesFormat format;
  return format;
}

}  // namespace hocket
