#include "server/observe/request_recorder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/black_box.h"
#include "base/mix.h"
#include "server/generation/answer.h"
#include "server/http/error_map.h"

namespace hocket {
namespace {

constexpr int kBlockTokens = 32;
constexpr size_t kMaxParam = 64;

uint64_t mixed(uint64_t hash, TokenId id) {
  return mix64(hash + kMixStep * static_cast<uint64_t>(value(id) + 1));
}

// Each block's id stands for all tokens up to its end. `space` stands for the clients that share
// prefixes. Ids have 53 bits, so that every JSON reader can tell them apart.
std::vector<TokenBlock> blocks_of(std::span<const TokenId> ids, uint64_t space) {
  std::vector<TokenBlock> blocks;
  uint64_t hash = space;
  while (!ids.empty()) {
    const size_t len = std::min<size_t>(kBlockTokens, ids.size());
    for (const TokenId id : ids.first(len)) hash = mixed(hash, id);
    blocks.push_back({.id = mix64(hash + len) >> 11, .len = static_cast<int>(len)});
    ids = ids.subspan(len);
  }
  return blocks;
}

// Copies the numbers only: many records wait for the observer's thread, and a list may be megabytes
// of a client.
SamplingParams numbers_of(const SamplingParams& all) {
  SamplingParams numbers;
  numbers.temperature = all.temperature;
  numbers.top_p = all.top_p;
  numbers.top_k = all.top_k;
  numbers.min_p = all.min_p;
  numbers.frequency_penalty = all.frequency_penalty;
  numbers.presence_penalty = all.presence_penalty;
  numbers.repetition_penalty = all.repetition_penalty;
  numbers.seed = all.seed;
  numbers.max_new_tokens = all.max_new_tokens;
  numbers.min_new_tokens = all.min_new_tokens;
  numbers.ignore_eos = all.ignore_eos;
  return numbers;
}

int64_t bytes_of(const RequestRecord& record) {
  size_t sum =
      record.prompts.size() * sizeof(PromptRecord) + record.choices.size() * sizeof(ChoiceRecord);
  for (const PromptRecord& prompt : record.prompts)
    sum += prompt.rid.size() + prompt.blocks.size() * sizeof(TokenBlock);
  return static_cast<int64_t>(sum);
}

std::vector<PromptRecord> prompts_of(const PreparedRequest& prepared) {
  const GenerationRequest& request = prepared.request;
  std::vector<PromptRecord> prompts;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const Prompt& prompt = request.prompts[i];
    prompts.push_back({.num_tokens = static_cast<int>(prepared.prompts[i].size()),
                       .n = prompt.n,
                       .rid = prompt.rid,
                       .sampling = numbers_of(prompt.sampling),
                       .num_stops = static_cast<int>(prompt.sampling.stop.size() +
                                                     prompt.sampling.stop_ids.size()),
                       .seeded = prompt.seeded});
  }
  return prompts;
}

int num_texts(const PreparedRequest& prepared) {
  int n = 0;
  for (const Prompt& prompt : prepared.request.prompts) n += prompt.n;
  return n;
}

ChoiceRecord choice_of(const ChoiceAnswer& choice) {
  return {.prompt = choice.prompt,
          .rank = choice.rank,
          .cached_tokens = choice.cached_tokens,
          .recomputed_tokens = choice.recomputed_tokens,
          .generated_tokens = static_cast<int>(choice.ids.size()),
          .num_retractions = choice.num_retractions,
          .drafts = choice.drafts,
          .finish = choice.finish,
          .times = choice.times,
          .ids_hash = hash_of_ids(choice.ids)};
}

}  // namespace

void ObserverInbox::push(RequestNote&& note) {
  const bool fits = note.record.share.take(budget, bytes_of(note.record));
  if (!fits || !notes.push(std::move(note))) ++num_lost;
}

uint64_t hash_of_ids(std::span<const TokenId> ids) {
  uint64_t hash = 0;
  for (const TokenId id : ids) hash = mixed(hash, id);
  return hash;
}

RequestRecorder::RequestRecorder(ObserverInbox& inbox, ObserverOutputs outputs,
                                 RequestRecord record)
    : inbox_(inbox), outputs_(outputs), record_(std::move(record)) {}

RequestRecorder::~RequestRecorder() {
  if (reported_) return;
  if (!record_.forwarded_to.empty())
    report();
  else
    failed(error(ErrorCode::internal, "the request was dropped without an answer"));
}

void RequestRecorder::began(const PreparedRequest& prepared) {
  record_.id = prepared.id;
  record_.who = prepared.request.who;
  record_.stream = prepared.request.stream;
  record_.tokenized = RealClock().now();
  record_.prompts = prompts_of(prepared);
  if (outputs_.dump) {
    const uint64_t space = cache_namespace_of(prepared.request).low;
    for (size_t i = 0; i < record_.prompts.size(); ++i)
      record_.prompts[i].blocks = blocks_of(prepared.prompts[i], space);
  }
  if (outputs_.black_box)
    black_box::note(black_box::Ring::requests,
                    R"("request":"began","id":"{}","path":"{}","prompt_tokens":{},"texts":{})",
                    record_.id, record_.path, record_.num_prompt_tokens(), num_texts(prepared));
  if (!outputs_.log) return;
  RequestNote note{.kind = RequestNote::Kind::began};
  RequestRecord& out = note.record;
  out.path = record_.path;
  out.id = record_.id;
  out.who = record_.who;
  out.stream = record_.stream;
  out.prompts = prompts_of(prepared);
  const bool texts = outputs_.texts && prepared.model.tokenizer != nullptr;
  for (size_t i = 0; texts && i < out.prompts.size(); ++i)
    out.prompts[i].text = out.share.keep(inbox_.budget, prompt_text(prepared, static_cast<int>(i)));
  inbox_.push(std::move(note));
}

void RequestRecorder::failed(const Error& why) {
  record_.status = http_status(why.code);
  record_.error_code = error_slug(why.code);
  if (why.param.size() <= kMaxParam) record_.error_param = why.param;
  const bool may_quote =
      why.code == ErrorCode::invalid_request || why.code == ErrorCode::template_failed;
  if (outputs_.texts || !may_quote) record_.error = why.message;
  report();
}

void RequestRecorder::ended(const Answer& answer, int status) {
  record_.status = status;
  record_.first_token = answer.first_token;
  record_.forwarded_to.clear();
  record_.choices.clear();
  for (const ChoiceAnswer& choice : answer.choices) {
    ChoiceRecord& out = record_.choices.emplace_back(choice_of(choice));
    if (outputs_.texts) out.text = record_.share.keep(inbox_.budget, choice.text);
  }
  if (status == kClientLeft) record_.error_code = "client_left";
  report();
}

void RequestRecorder::forwarded_to(std::string to) {
  record_.forwarded_to = std::move(to);
}

std::string RequestRecorder::traceparent() const {
  return record_.trace ? to_traceparent(*record_.trace) : "";
}

void RequestRecorder::report() {
  if (std::exchange(reported_, true)) return;
  record_.ended = RealClock().now();
  if (outputs_.black_box) note_in_black_box();
  if (!outputs_.notes()) return;
  inbox_.push({.kind = RequestNote::Kind::ended, .record = std::move(record_)});
}

// Nothing in the names that are written here needs to be escaped.
void RequestRecorder::note_in_black_box() const {
  int64_t generated = 0;
  for (const ChoiceRecord& choice : record_.choices) generated += choice.generated_tokens;
  black_box::note(
      black_box::Ring::requests,
      R"("request":"ended","id":"{}","status":{},"code":"{}","generated":{},"total_ms":{:.1f})",
      record_.id, record_.status, record_.error_code, generated,
      to_ms(record_.ended - record_.received));
}

}  // namespace hocket
