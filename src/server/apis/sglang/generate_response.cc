// Writes answers of SGLang's /generate: text, output_ids, meta_info. Each block of a stream repeats
// all text before it, as SGLang's clients expect; each part is written as JSON once.
// Log-probabilities of the prompt come with the first block only, since they never change.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>

#include "policy/scheduler/draft_figures.h"
#include "server/apis/sglang/generate_response.h"
#include "server/generation/answer.h"

namespace hocket {
namespace {

Json finish_json(const ChoiceAnswer& choice) {
  switch (choice.finish) {
    case FinishReason::none:
      return nullptr;
    case FinishReason::stop:
      return {{"type", "stop"}, {"matched", matched_stop_json(choice)}};
    case FinishReason::length:
      return {{"type", "length"}, {"length", choice.ids.size()}};
    case FinishReason::abort:
    case FinishReason::error:
      break;
  }
  return {{"type", "abort"}, {"message", "the request was aborted"}};
}

// The longer a block is, the more tokens pass before the next one. So a stream of any length costs
// its client, its connection and this server a limited number of bytes per token.
constexpr size_t kBlockBytesPerToken = 32 << 10;

// Indices of the columns of log-probabilities.
constexpr size_t kRows = 0, kTopRows = 1;

// Returns [logprob, id, text]; text is null unless asked for.
Json row_json(const Answer& answer, TokenId id, Json logprob) {
  const Tokenizer* tokenizer =
      answer.prepared.request.logprob_text ? answer.prepared.model.tokenizer : nullptr;
  return Json::array({std::move(logprob), value(id),
                      tokenizer != nullptr ? Json(token_text(*tokenizer, id)) : Json()});
}

std::string logprobs_text(const WrittenChoice& written, const SamplingParams& sampling) {
  std::string text;
  const auto add = [&](std::string_view name, const LogprobColumns& columns, size_t column) {
    text += fmt::format(",\"{}\":[", name);
    text.append(columns.lists[column]).append("]");
  };
  add("input_token_logprobs", written.prompt_columns, kRows);
  add("output_token_logprobs", written.columns, kRows);
  if (sampling.num_top_logprobs == 0) return text;
  add("input_top_logprobs", written.prompt_columns, kTopRows);
  add("output_top_logprobs", written.columns, kTopRows);
  return text;
}

// Returns the expert ids in base64, as SGLang does: 32-bit numbers, lowest byte first, in the shape
// [tokens][layers][experts per token].
std::string routed_text(const RoutedExperts& routed) {
  std::vector<unsigned char> bytes;
  bytes.reserve(4 * routed.ids.size());
  for (const uint16_t id : routed.ids)
    for (const int part : {id & 0xff, id >> 8, 0, 0}) bytes.push_back(static_cast<uint8_t>(part));
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and a terminating zero
  text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                  bytes.data(), static_cast<int>(bytes.size()))));
  return text;
}

// Adds the fields that say what drafts gave the choice, as SGLang counts.
void add_drafts(const ChoiceAnswer& choice, Json& meta) {
  const DraftCounts& drafts = choice.drafts;
  const auto ratio = [](double part, int whole) { return whole > 0 ? part / whole : 0; };
  meta["spec_verify_ct"] = drafts.num_verified;
  meta["spec_accept_length"] = accept_length(static_cast<uint64_t>(drafts.num_accepted),
                                             static_cast<uint64_t>(drafts.num_verified));
  meta["spec_accept_rate"] = ratio(drafts.num_accepted, drafts.num_drafts);
}

// Adds the cached tokens by SGLang's names. `host` is its tier in the memory of a GPU's machine,
// which hocket does not have; `storage` counts every other place, and fields with the names of
// /metrics count each.
void add_cached(const ChoiceAnswer& choice, Json& meta) {
  TokensByTier cached;
  cached.add(choice);
  meta["cached_tokens"] = cached.total;
  if (cached.total == 0) return;
  Json& details = meta["cached_tokens_details"];
  details = {{"device", cached.in_memory()}, {"host", 0}};
  if (cached.num_fetched() == 0) return;
  details["storage"] = cached.num_fetched();
  std::string backends;
  for (size_t i = 0; i < cached.fetched.size(); ++i) {
    if (cached.fetched[i] == 0) continue;
    backends.append(backends.empty() ? "" : "+").append(kPageTierNames[i]);
    details[fmt::format("storage_{}", kPageTierNames[i])] = cached.fetched[i];
  }
  details["storage_backend"] = backends;
}

bool is_list(const Answer& answer) {
  return answer.prepared.request.batch || answer.choices.size() > 1;
}

// `escaped` and `ids` are the choice's text and ids as JSON, without quotes and brackets.
std::string choice_text(const Answer& answer, const ChoiceAnswer& choice,
                        const WrittenChoice& written, std::string_view escaped,
                        std::string_view ids) {
  const auto p = static_cast<size_t>(choice.prompt);
  const Prompt& prompt = answer.prepared.request.prompts[p];
  Json meta = {{"id", prompt.rid},
               {"finish_reason", finish_json(choice)},
               {"prompt_tokens", answer.prepared.prompts[p].size()},
               {"completion_tokens", choice.ids.size()}};
  add_cached(choice, meta);
  if (choice.recomputed_tokens > 0) meta["recomputed_tokens"] = choice.recomputed_tokens;
  if (choice.ended) {
    meta["e2e_latency"] =
        to_seconds(std::max(Duration{}, choice.times.finished - answer.prepared.received));
    meta["timings"] = timings_json(answer);
    if (answer.prepared.model.info->speculation.max_drafts > 0) add_drafts(choice, meta);
    if (choice.routed != nullptr) meta["routed_experts"] = routed_text(*choice.routed);
  }
  std::string text = "{\"text\":\"";
  text.append(escaped).append("\",\"output_ids\":[").append(ids).append("],\"meta_info\":");
  text += to_text(meta);
  text.pop_back();
  if (prompt.sampling.num_top_logprobs >= 0) text += logprobs_text(written, prompt.sampling);
  return text += "}}";
}

// Appends the text and ids that were not sent to `escaped` and `joined_ids`.
void escape_new_text(const ChoiceAnswer& choice, WrittenChoice& written) {
  StreamCursor& sent = written.sent;
  const std::string fresh = json_string(std::string_view(choice.text).substr(sent.text));
  written.escaped.append(fresh, 1, fresh.size() - 2);
  sent.text = choice.text.size();
  append_ids(written.joined_ids, std::span(choice.ids).subspan(sent.ids));
  sent.ids = choice.ids.size();
}

class GenerateFormat final : public ApiFormat {
 public:
  std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                         WrittenChoices all) const override {
    WrittenChoice& written = written_of(choice, all);
    const size_t num_new = choice.ids.size() - written.sent.ids;
    const bool has_more = num_new > 0 || choice.text.size() > written.sent.text;
    if (written.sent.end || (!has_more && !choice.ended)) return "";
    const size_t bytes = choice.text.size() + written.joined_ids.size() + written.columns.bytes();
    const bool far_enough = bytes <= num_new * kBlockBytesPerToken;
    if (written.sent.opening && !choice.ended && !far_enough) return "";
    escape_new_text(choice, written);
    written.sent.opening = true;
    written.sent.end = choice.ended;
    std::string block = choice_text(answer, choice, written, written.escaped, written.joined_ids);
    written.prompt_columns.clear();
    if (!is_list(answer)) return block;
    block.pop_back();
    return block += fmt::format(",\"index\":{}}}", choice.index);
  }
  bool repeats() const override { return true; }
  std::string closing_block(const Answer&) const override { return ""; }
  std::string whole(const Answer& answer, WrittenChoices all) const override {
    std::string joined;
    for (const ChoiceAnswer& choice : answer.choices) {
      const std::string text = json_string(choice.text), ids = ids_text(choice.ids);
      if (!joined.empty()) joined += ',';
      joined += choice_text(answer, choice, written_of(choice, all), inside(text), inside(ids));
    }
    return is_list(answer) ? "[" + joined + "]" : joined;
  }

  void write_position(const Answer& answer, const ChoiceAnswer& choice, LogprobColumns& to,
                      TokenId id, const PositionLogprobs* found) const override {
    const auto p = static_cast<size_t>(choice.prompt);
    const Json logprob = found != nullptr ? Json(finite_logprob(found->logprob)) : Json();
    to.add(kRows, to_text(row_json(answer, id, logprob)));
    if (answer.prepared.request.prompts[p].sampling.num_top_logprobs == 0) return;
    if (found == nullptr) return to.add(kTopRows, "null");
    Json rows = Json::array();
    for (const TokenLogprob& t : found->top)
      rows.push_back(row_json(answer, t.token, finite_logprob(t.logprob)));
    to.add(kTopRows, to_text(rows));
  }
  size_t num_writable(const ChoiceAnswer& choice) const override { return choice.ids.size(); }

 private:
  static std::string_view inside(std::string_view json) { return json.substr(1, json.size() - 2); }
};

}  // namespace

const ApiFormat& generate_format() {
  static const GenerateFormat format;
  return format;
}

}  // namespace hocket
