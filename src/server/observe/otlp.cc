#include "server/observe/otlp.h"

#include <fmt/ranges.h>

#include "core/version.h"
#include "server/generation/answer.h"

namespace hocket {
namespace {

constexpr int kSpanKindInternal = 1, kSpanKindServer = 2;  // values of Span.kind
constexpr int kStatusError = 2;
constexpr int kFirstServerFault = 500;

Json text_value(std::string_view text) {
  return {{"stringValue", text}};
}

void add(Json& attributes, const char* key, Json value) {
  attributes.push_back({{"key", key}, {"value", std::move(value)}});
}
void add(Json& attributes, const char* key, int64_t value) {
  add(attributes, key, Json{{"intValue", std::to_string(value)}});
}
void add(Json& attributes, const char* key, double value) {
  add(attributes, key, Json{{"doubleValue", value}});
}

struct Times {
  TimePoint from, to;
};

Json span_json(const RequestRecord& record, std::string_view name, Times times, Json attributes) {
  return {{"traceId", trace_id_text(*record.trace)},
          {"name", name},
          {"kind", kSpanKindInternal},
          {"startTimeUnixNano", std::to_string(record.unix_ns(times.from))},
          {"endTimeUnixNano", std::to_string(record.unix_ns(std::max(times.from, times.to)))},
          {"attributes", std::move(attributes)}};
}

void add_answers(Json& attributes, const RequestRecord& record) {
  int64_t generated = 0, cached = 0, recomputed = 0;
  Json reasons = Json::array();
  for (const ChoiceRecord& choice : record.choices) {
    generated += choice.generated_tokens;
    cached += choice.cached_tokens;
    recomputed += choice.recomputed_tokens;
    if (const Json reason = finish_reason_json(choice.finish); reason.is_string())
      reasons.push_back(text_value(reason.get<std::string>()));
  }
  add(attributes, "gen_ai.usage.output_tokens", generated);
  add(attributes, "hocket.cached_tokens", cached);
  add(attributes, "hocket.recomputed_tokens", recomputed);
  add(attributes, "gen_ai.response.finish_reasons",
      Json{{"arrayValue", {{"values", std::move(reasons)}}}});
}

Json request_attributes(const RequestRecord& record) {
  Json a = Json::array();
  add(a, "http.request.method", text_value("POST"));
  add(a, "url.path", text_value(record.path));
  add(a, "http.response.status_code", int64_t{record.status});
  if (!record.operation.empty()) add(a, "gen_ai.operation.name", text_value(record.operation));
  add(a, "gen_ai.request.model", text_value(record.model));
  add(a, "gen_ai.response.id", text_value(record.id));
  add(a, "hocket.who", text_value(record.who));
  if (!record.error_code.empty()) add(a, "error.type", text_value(record.error_code));
  if (!record.forwarded_to.empty()) add(a, "hocket.handed_on_to", text_value(record.forwarded_to));
  if (!record.prompts.empty()) {
    const SamplingParams& s = record.prompts.front().sampling;
    add(a, "gen_ai.usage.input_tokens", record.num_prompt_tokens());
    add(a, "gen_ai.request.max_tokens", int64_t{s.max_new_tokens});
    add(a, "gen_ai.request.temperature", s.temperature);
    add(a, "gen_ai.request.top_p", s.top_p);
  }
  if (record.first_token != TimePoint{})
    add(a, "gen_ai.server.time_to_first_token", to_seconds(record.first_token - record.received));
  if (!record.choices.empty()) add_answers(a, record);
  return a;
}

std::string request_span(const RequestRecord& record) {
  Json span = span_json(record, "POST " + record.path, {record.received, record.ended},
                        request_attributes(record));
  span["kind"] = kSpanKindServer;
  span["spanId"] = span_id_text(record.trace->span);
  if (record.parent_span != 0) span["parentSpanId"] = span_id_text(record.parent_span);
  if (record.status >= kFirstServerFault)
    span["status"] = {{"code", kStatusError}, {"message", record.error}};
  return to_text(span);
}

}  // namespace

std::vector<std::string> spans_of(const RequestRecord& record) {
  std::vector<std::string> spans = {request_span(record)};
  const auto child = [&](std::string_view name, Times times, Json attributes) {
    const bool passed = times.from != TimePoint{} && times.to != TimePoint{};
    if (!passed) return;
    Json span = span_json(record, name, times, std::move(attributes));
    span["spanId"] = span_id_text(span_under(*record.trace).span);
    span["parentSpanId"] = span_id_text(record.trace->span);
    spans.push_back(to_text(span));
  };
  child("text", {record.received, record.tokenized}, Json::array());
  for (size_t i = 0; i < record.choices.size(); ++i) {
    const ChoiceRecord& choice = record.choices[i];
    const RequestTimes& t = choice.times;
    Json a = Json::array();
    add(a, "hocket.choice", static_cast<int64_t>(i));
    add(a, "hocket.rank", int64_t{choice.rank});
    child("queue", {t.arrived, t.first_scheduled}, a);
    Json prefill = a, decode = a;
    add(prefill, "hocket.prompt_tokens",
        int64_t{record.prompts[static_cast<size_t>(choice.prompt)].num_tokens});
    add(prefill, "hocket.cached_tokens", int64_t{choice.cached_tokens});
    add(prefill, "hocket.recomputed_tokens", int64_t{choice.recomputed_tokens});
    child("prefill", {t.first_scheduled, t.prefill_done}, std::move(prefill));
    add(decode, "hocket.generated_tokens", int64_t{choice.generated_tokens});
    add(decode, "hocket.retractions", int64_t{choice.num_retractions});
    child("decode", {t.prefill_done, t.finished}, std::move(decode));
  }
  return spans;
}

std::string export_request(const SpanSource& source, const std::vector<std::string>& spans) {
  Json resource = Json::array();
  add(resource, "service.name", text_value("hocket"));
  add(resource, "service.version", text_value(kVersion));
  add(resource, "service.instance.id", text_value(source.instance));
  add(resource, "hocket.model", text_value(source.model));
  return fmt::format(
      R"({{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"scope":)"
      R"({{"name":"hocket","version":"{}"}},"spans":[{}]}}]}}]}})",
      to_text(resource), kVersion, fmt::join(spans, ","));
}

}  // namespace hocket
