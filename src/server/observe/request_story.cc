#include "server/observe/request_story.h"

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
constexpr size_t kParamMax = 64;

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

std::vector<PromptRecord> prompts_of(const Answer& answer) {
  const GenerationRequest& request = answer.request;
  std::vector<PromptRecord> prompts;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const Prompt& prompt = request.prompts[i];
    prompts.push_back({.num_tokens = static_cast<int>(answer.prompts[i].size()),
                       .n = prompt.n,
                       .rid = prompt.rid,
                       .sampling = numbers_of(prompt.sampling),
                       .num_stops = static_cast<int>(prompt.sampling.stop.size() +
                                                     prompt.sampling.stop_ids.size()),
                       .seeded = prompt.seeded});
  }
  return prompts;
}

int num_texts(const Answer& answer) {
  int n = 0;
  for (const Prompt& prompt : answer.request.prompts) n += prompt.n;
  return n;
}

ChoiceRecord choice_of(const ChoiceAnswer& choice) {
  return {.prompt = choice.prompt,
          .rank = choice.rank,
          .cached_tokens = choice.cached_tokens,
          .generated_tokens = static_cast<int>(choice.ids.size()),
          .num_retractions = choice.num_retractions,
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

RequestStory::RequestStory(ObserverInbox& inbox, ObserverWants wants, RequestRecord record)
    : inbox_(inbox), wants_(wants), record_(std::move(record)) {}

RequestStory::~RequestStory() {
  if (told_) return;
  if (!record_.handed_on_to.empty())
    tell();
  else
    failed(error(ErrorCode::internal, "the request was dropped without an answer"));
}

void RequestStory::began(const Answer& answer) {
  record_.id = answer.id;
  record_.who = answer.request.who;
  record_.stream = answer.request.stream;
  record_.tokenized = RealClock().now();
  record_.prompts = prompts_of(answer);
  if (wants_.dump) {
    const uint64_t space = cache_namespace_of(answer.request).low;
    for (size_t i = 0; i < record_.prompts.size(); ++i)
      record_.prompts[i].blocks = blocks_of(answer.prompts[i], space);
  }
  if (wants_.black_box)
    black_box::note(black_box::Ring::requests,
                    R"("request":"began","id":"{}","path":"{}","prompt_tokens":{},"texts":{})",
                    record_.id, record_.path, record_.num_prompt_tokens(), num_texts(answer));
  if (!wants_.log) return;
  RequestNote note{.kind = RequestNote::Kind::began};
  RequestRecord& told = note.record;
  told.path = record_.path;
  told.id = record_.id;
  told.who = record_.who;
  told.stream = record_.stream;
  told.prompts = prompts_of(answer);
  const bool texts = wants_.texts && answer.model.tokenizer != nullptr;
  for (size_t i = 0; texts && i < told.prompts.size(); ++i)
    told.prompts[i].text = told.share.keep(inbox_.budget, prompt_text(answer, static_cast<int>(i)));
  inbox_.push(std::move(note));
}

void RequestStory::failed(const Error& why) {
  record_.status = http_status(why.code);
  record_.error_code = error_slug(why.code);
  if (why.param.size() <= kParamMax) record_.error_param = why.param;
  const bool may_quote =
      why.code == ErrorCode::invalid_request || why.code == ErrorCode::template_failed;
  if (wants_.texts || !may_quote) record_.error = why.message;
  tell();
}

void RequestStory::ended(const Answer& answer, int status) {
  record_.status = status;
  record_.first_token = answer.first_token;
  record_.handed_on_to.clear();
  record_.choices.clear();
  for (const ChoiceAnswer& choice : answer.choices) {
    ChoiceRecord& told = record_.choices.emplace_back(choice_of(choice));
    if (wants_.texts) told.text = record_.share.keep(inbox_.budget, choice.text);
  }
  if (status == kClientLeft) record_.error_code = "client_left";
  tell();
}

void RequestStory::handed_on(std::string to) {
  record_.handed_on_to = std::move(to);
}

std::string RequestStory::traceparent() const {
  return record_.trace ? to_traceparent(*record_.trace) : "";
}

void RequestStory::tell() {
  if (std::exchange(told_, true)) return;
  record_.ended = RealClock().now();
  if (wants_.black_box) tell_black_box();
  if (!wants_.notes()) return;
  inbox_.push({.kind = RequestNote::Kind::ended, .record = std::move(record_)});
}

// Nothing in the names that are written here needs to be escaped.
void RequestStory::tell_black_box() const {
  int64_t generated = 0;
  for (const ChoiceRecord& choice : record_.choices) generated += choice.generated_tokens;
  black_box::note(
      black_box::Ring::requests,
      R"("request":"ended","id":"{}","status":{},"code":"{}","generated":{},"total_ms":{:.1f})",
      record_.id, record_.status, record_.error_code, generated,
      to_ms(record_.ended - record_.received));
}

}  // namespace hocket
