#include "server/generation/answer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>

#include "server/http/request_target.h"

namespace hocket {

void add_event(std::vector<AnswerEvent>& events, AnswerEvent event) {
  using EventKind = AnswerEvent::Kind;
  const bool piece = event.kind == EventKind::text || event.kind == EventKind::reasoning ||
                     event.kind == EventKind::arguments;
  if (piece && event.text.empty()) return;
  if (piece && !events.empty() && events.back().kind == event.kind &&
      events.back().call == event.call)
    events.back().text += event.text;
  else
    events.push_back(std::move(event));
}

bool write_logprobs(const ApiFormat& format, const Answer& answer, ChoiceAnswer& choice,
                    WrittenChoice& written, size_t max_positions) {
  const auto p = static_cast<size_t>(choice.prompt);
  const SamplingParams& sampling = answer.prepared.request.prompts[p].sampling;
  if (sampling.num_top_logprobs < 0) return true;
  if (sampling.prompt_logprobs_from >= 0) {
    const std::vector<TokenId>& prompt = answer.prepared.prompts[p];
    const auto from = static_cast<size_t>(sampling.prompt_logprobs_from);
    LogprobColumns& to = written.prompt_columns;
    for (; from + to.num < prompt.size(); ++to.num, --max_positions) {
      if (max_positions == 0) return false;
      const size_t i = from + to.num;
      const bool known = i > 0 && to.num < choice.prompt_logprobs.size();
      format.write_position(answer, choice, to, prompt[i],
                            known ? &choice.prompt_logprobs[to.num] : nullptr);
    }
    std::vector<PositionLogprobs>().swap(choice.prompt_logprobs);
  }
  const size_t end = std::min(format.num_writable(choice), choice.logprobs.size());
  LogprobColumns& to = written.columns;
  if (to.num == 0) to.num_chars = written.prompt_columns.num_chars;
  for (; to.num < end; ++to.num, --max_positions) {
    if (max_positions == 0) return false;
    format.write_position(answer, choice, to, choice.ids[to.num], &choice.logprobs[to.num]);
    std::vector<TokenLogprob>().swap(choice.logprobs[to.num].top);
  }
  return true;
}

std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const unsigned char c : bytes) text += fmt::format("\\x{:02x}", c);
  return text;
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? logprob : -9999.0;
}

size_t num_chars(std::string_view utf8) {
  return static_cast<size_t>(
      std::ranges::count_if(utf8, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

Json finish_reason_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
    case FinishReason::error:
      return "abort";
    case FinishReason::none:
      break;
  }
  return nullptr;
}

int num_calls(const ChoiceAnswer& choice) {
  return static_cast<int>(
      std::ranges::count(choice.events, AnswerEvent::Kind::call_end, &AnswerEvent::kind));
}

Json matched_stop_json(const ChoiceAnswer& choice) {
  if (const auto* id = std::get_if<TokenId>(&choice.matched_stop)) return value(*id);
  if (const auto* text = std::get_if<std::string>(&choice.matched_stop)) return *text;
  return nullptr;
}

Json ids_json(std::span<const TokenId> ids) {
  Json out = Json::array();
  for (const TokenId id : ids) out.push_back(value(id));
  return out;
}

void append_ids(std::string& out, std::span<const TokenId> ids) {
  for (const TokenId id : ids)
    fmt::format_to(std::back_inserter(out), "{}{}", out.empty() ? "" : ",", value(id));
}

std::string ids_text(std::span<const TokenId> ids) {
  std::string out;
  append_ids(out, ids);
  return "[" + out + "]";
}

double ms_between(TimePoint from, TimePoint to) {
  if (from == TimePoint{} || to < from) return 0;
  return std::round(to_ms(to - from) * 1e3) / 1e3;
}

void TokensByTier::add(const ChoiceAnswer& choice) {
  total += choice.cached_tokens;
  for (size_t i = 0; i < fetched.size(); ++i) fetched[i] += choice.fetched_tokens[i];
}

int64_t TokensByTier::num_fetched() const {
  return std::accumulate(fetched.begin(), fetched.end(), int64_t{0});
}

void TokensByTier::write_tiers(Json& details) const {
  if (num_fetched() == 0) return;
  Json& tiers = details["cached_tokens_details"];
  tiers["memory"] = in_memory();
  for (size_t i = 0; i < fetched.size(); ++i)
    if (fetched[i] > 0) tiers[std::string(kPageTierNames[i])] = fetched[i];
}

Json usage_json(const Answer& answer) {
  size_t prompt = 0, completion = 0;
  for (const auto& ids : answer.prepared.prompts) prompt += ids.size();
  int64_t recomputed = 0, reasoning = 0;
  DraftCounts drafts;
  TokensByTier cached;
  std::vector<bool> seen(answer.prepared.prompts.size());
  for (const ChoiceAnswer& choice : answer.choices) {
    completion += choice.ids.size();
    reasoning += choice.reasoning_tokens;
    drafts.add(choice.drafts);
    // The prompt's later choices find it in the cache because of the first, so only that one
    // counts.
    if (seen[static_cast<size_t>(choice.prompt)]) continue;
    cached.add(choice);
    recomputed += choice.recomputed_tokens;
    seen[static_cast<size_t>(choice.prompt)] = true;
  }
  Json usage = {{"prompt_tokens", prompt},
                {"completion_tokens", completion},
                {"total_tokens", prompt + completion},
                {"prompt_tokens_details", {{"cached_tokens", cached.total}}}};
  cached.write_tiers(usage["prompt_tokens_details"]);
  if (recomputed > 0) usage["prompt_tokens_details"]["recomputed_tokens"] = recomputed;
  const GenerationRequest& request = answer.prepared.request;
  if (request.reading.reasoning) usage["completion_tokens_details"]["reasoning_tokens"] = reasoning;
  if (request.prediction) {
    Json& details = usage["completion_tokens_details"];
    details["accepted_prediction_tokens"] = drafts.num_predicted_accepted;
    details["rejected_prediction_tokens"] = drafts.num_predicted - drafts.num_predicted_accepted;
  }
  return usage;
}

Json timings_json(const Answer& answer) {
  const RequestTimes& t = answer.choices[answer.last_ended].times;
  const double decode = ms_between(t.prefill_done, t.finished);
  Json out = {{"text_ms", ms_between(answer.prepared.received, t.arrived)},
              {"queue_ms", ms_between(t.arrived, t.first_scheduled)},
              {"prefill_ms", ms_between(t.first_scheduled, t.prefill_done)},
              {"decode_ms", decode},
              {"ttft_ms", ms_between(answer.prepared.received, answer.first_token)},
              {"total_ms", ms_between(answer.prepared.received, answer.ended)}};
  const size_t tokens = answer.choices[answer.last_ended].ids.size();
  if (tokens > 1 && decode > 0)
    out["tokens_per_second"] = std::round(static_cast<double>(tokens - 1) / decode * 1e5) / 1e2;
  return out;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace hocket
