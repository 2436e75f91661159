#include "server/observe/request_log.h"

#include <array>
#include <vector>

#include "base/log.h"

namespace hocket {
namespace {

double elapsed_ms(TimePoint from, TimePoint to) {
  return from == TimePoint{} || to < from ? 0 : to_ms(to - from);
}

std::string_view name_of(FinishReason reason) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "stop", "length", "abort", "error"};
  return kNames.at(static_cast<size_t>(reason));
}

// Returns the first bytes of the text, cut between characters.
std::string_view beginning_of(std::string_view text) {
  if (text.size() <= kBeginningBytes) return text;
  size_t end = kBeginningBytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void add_sampling(std::vector<log::Field>& fields, const PromptRecord& prompt) {
  const SamplingParams& s = prompt.sampling;
  fields.insert(fields.end(), {{"n", int64_t{prompt.n}},
                               {"max_tokens", int64_t{s.max_new_tokens}},
                               {"temperature", s.temperature},
                               {"top_p", s.top_p},
                               {"top_k", int64_t{s.top_k}},
                               {"min_p", s.min_p},
                               {"frequency_penalty", s.frequency_penalty},
                               {"presence_penalty", s.presence_penalty},
                               {"repetition_penalty", s.repetition_penalty},
                               {"seed", static_cast<int64_t>(s.seed)},
                               {"seeded", prompt.seeded},
                               {"ignore_eos", s.ignore_eos},
                               {"stops", int64_t{prompt.num_stops}}});
}

// Returns the choice that ended last.
const ChoiceRecord& last_of(const RequestRecord& record) {
  const ChoiceRecord* last = &record.choices.front();
  for (const ChoiceRecord& choice : record.choices)
    if (choice.times.finished > last->times.finished) last = &choice;
  return *last;
}

void add_end(std::vector<log::Field>& fields, const RequestRecord& record) {
  const ChoiceRecord& last = last_of(record);
  int64_t generated = 0, cached = 0, recomputed = 0;
  DraftCounts drafts;
  for (const ChoiceRecord& choice : record.choices) {
    generated += choice.generated_tokens;
    cached += choice.cached_tokens;
    recomputed += choice.recomputed_tokens;
    drafts.add(choice.drafts);
  }
  const RequestTimes& t = last.times;
  fields.insert(fields.end(), {{"finish", name_of(last.finish)},
                               {"choices", static_cast<int64_t>(record.choices.size())},
                               {"rank", int64_t{last.rank}},
                               {"prompt_tokens", record.num_prompt_tokens()},
                               {"cached_tokens", cached},
                               {"recomputed_tokens", recomputed},
                               {"completion_tokens", generated},
                               {"retractions", int64_t{last.num_retractions}},
                               {"text_ms", elapsed_ms(record.received, t.arrived)},
                               {"queue_ms", elapsed_ms(t.arrived, t.first_scheduled)},
                               {"prefill_ms", elapsed_ms(t.first_scheduled, t.prefill_done)},
                               {"decode_ms", elapsed_ms(t.prefill_done, t.finished)},
                               {"ttft_ms", elapsed_ms(record.received, record.first_token)}});
  if (drafts.num_verified == 0) return;
  fields.insert(fields.end(), {{"spec_verify_ct", int64_t{drafts.num_verified}},
                               {"spec_drafts", int64_t{drafts.num_drafts}},
                               {"spec_accepted", int64_t{drafts.num_accepted}}});
}

std::vector<log::Field> head_of(const RequestRecord& record) {
  return {{"id", std::string_view(record.id)},
          {"path", std::string_view(record.path)},
          {"who", std::string_view(record.who)}};
}

// Logs one line per prompt, or per choice.
template <class List>
void log_texts(const RequestRecord& record, const List& list, std::string_view event,
               RequestLogLevel level) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string_view all = list[i].text;
    if (all.empty()) continue;
    const std::string_view shown = level == RequestLogLevel::texts ? all : beginning_of(all);
    const log::Field fields[] = {{"id", std::string_view(record.id)},
                                 {"index", static_cast<int64_t>(i)},
                                 {"bytes", static_cast<int64_t>(all.size())},
                                 {"text", shown}};
    log::record(log::Level::info, event, fields);
  }
}

}  // namespace

Result<RequestLogLevel> parse_request_log_level(int level) {
  if (level >= 0 && level <= 3) return static_cast<RequestLogLevel>(level);
  return fail(error(ErrorCode::bad_value, "--log-requests-level {} is not one of 0, 1, 2, 3", level)
                  .with_param("log-requests-level"));
}

void log_began(const RequestRecord& record, RequestLogLevel level) {
  std::vector<log::Field> fields = head_of(record);
  if (!record.prompts.empty() && record.prompts.front().rid != record.id)
    fields.push_back({"rid", std::string_view(record.prompts.front().rid)});
  fields.insert(fields.end(), {{"stream", record.stream},
                               {"prompts", static_cast<int64_t>(record.prompts.size())},
                               {"prompt_tokens", record.num_prompt_tokens()}});
  if (level >= RequestLogLevel::sampling && !record.prompts.empty())
    add_sampling(fields, record.prompts.front());
  log::record(log::Level::info, "request_began", fields);
  if (level >= RequestLogLevel::beginnings)
    log_texts(record, record.prompts, "request_prompt", level);
}

void log_ended(const RequestRecord& record, RequestLogLevel level) {
  std::vector<log::Field> fields = head_of(record);
  fields.push_back({"status", int64_t{record.status}});
  if (!record.error_code.empty()) fields.push_back({"code", std::string_view(record.error_code)});
  if (!record.error_param.empty())
    fields.push_back({"param", std::string_view(record.error_param)});
  if (!record.error.empty()) fields.push_back({"error", std::string_view(record.error)});
  if (!record.forwarded_to.empty())
    fields.push_back({"handed_on_to", std::string_view(record.forwarded_to)});
  if (!record.choices.empty()) add_end(fields, record);
  fields.push_back({"total_ms", elapsed_ms(record.received, record.ended)});
  log::record(log::Level::info, "request_ended", fields);
  if (level >= RequestLogLevel::beginnings)
    log_texts(record, record.choices, "request_answer", level);
}

}  // namespace hocket
