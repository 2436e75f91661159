#include "server/generation/sampling_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "core/request_bounds.h"
#include "server/generation/structure_fields.h"

namespace hocket {
namespace {

// Limits for a text or a list of texts, none of them empty.
struct TextLimits {
  size_t max_count, max_bytes;
};
bool read_texts(Fields& fields, std::string_view name, TextLimits limits,
                std::vector<std::string>& out) {
  const Json* texts = fields.get(name);
  if (texts == nullptr) return false;
  const std::string path = fields.name_of(name);
  const auto wrong = [&](std::string message) {
    fields.fail_field(name, std::move(message));
    return false;
  };
  if (!texts->is_string() && !texts->is_array())
    return wrong(
        fmt::format("{} must be a string or a list of strings, not {}", path, type_name(*texts)));
  const auto entries = texts->is_string()
                           ? std::span<const Json>(texts, 1)
                           : std::span<const Json>(texts->get_ref<const Json::array_t&>());
  if (entries.size() > limits.max_count)
    return wrong(
        fmt::format("{} may hold {} strings, not {}", path, limits.max_count, entries.size()));
  for (const Json& one : entries) {
    if (!one.is_string())
      return wrong(fmt::format("{} must hold strings, not {}", path, type_name(one)));
    const auto& text = one.get_ref<const std::string&>();
    if (text.empty())
      return wrong(fmt::format("{} holds an empty string, which every text contains", path));
    if (text.size() > limits.max_bytes)
      return wrong(fmt::format("{}: a string may have {} bytes, not {}", path, limits.max_bytes,
                               text.size()));
    out.push_back(text);
  }
  return true;
}

// Prompts with the same patterns share one compiled StopRegex.
void read_stop_regex(Fields& fields, GenerationRequest& request, Prompt& prompt) {
  std::vector<std::string> patterns;
  const TextLimits limits{StopRegex::kMaxPatterns, StopRegex::kMaxPatternBytes};
  if (!read_texts(fields, "stop_regex", limits, patterns) || patterns.empty()) return;
  auto& compiled = request.stop_regexes;
  const auto known = std::ranges::find(compiled, patterns, &StopRegex::patterns);
  if (known != compiled.end()) {
    prompt.stop_regex = *known;
    return;
  }
  if (compiled.size() == kMaxStopRegexes)
    return fields.fail_field("stop_regex", fmt::format("stop_regex differs between prompts; at "
                                                       "most {} different ones may be",
                                                       kMaxStopRegexes));
  auto regex = StopRegex::compile(std::move(patterns));
  if (!regex)
    return fields.fail_field("stop_regex", "stop_regex: " + regex.error().message,
                             regex.error().fix);
  prompt.stop_regex = compiled.emplace_back(*std::move(regex));
}

void read_logit_bias(Fields& fields, const ServedModel& model, SamplingParams& sampling) {
  const Json* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  const int vocab = model.info->model.vocab_size;
  std::vector<LogitBias::Entry> out;
  for (const auto& [key, value] : bias->items()) {
    int id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab)
      return fields.fail_field("logit_bias",
                               fmt::format("logit_bias names '{}'; token ids are 0 to {}",
                                           key.substr(0, 32), vocab - 1));
    if (!value.is_number() || !kLogitBiasRange.holds(value.get<double>()))
      return fields.fail_field(
          "logit_bias",
          fmt::format("logit_bias of token {} must be a number {}", id, kLogitBiasRange.text()));
    out.emplace_back(TokenId{id}, value.get<float>());
  }
  std::ranges::sort(out, {}, [](const auto& entry) { return value(entry.first); });
  const auto twice = std::ranges::adjacent_find(out, {}, [](const auto& e) { return e.first; });
  if (twice != out.end())
    fields.fail_field("logit_bias",
                      fmt::format("logit_bias names token {} twice", value(twice->first)));
  sampling.logit_bias = LogitBias(std::move(out));
}

void refuse_others(Fields& fields) {
  fields.refuse("lora_path", "is not supported: no adapter is loaded");
  fields.refuse("custom_logit_processor", "is not supported");
  fields.refuse("logits_processors", "is not supported");
  fields.refuse("use_beam_search", "is not supported", "use n with a temperature");
  fields.refuse("return_hidden_states", "is not supported");
  fields.refuse("best_of", "is not supported", "use n, and choose by logprobs");
}

}  // namespace

void read_ids(Fields& fields, std::string_view name, const Json& list, const ServedModel& model,
              std::vector<TokenId>& out) {
  const int vocab = model.info->model.vocab_size;
  out.reserve(list.size());
  for (const Json& one : list) {
    const bool good = one.is_number_integer() && one >= 0 && one < vocab;
    if (!good)
      return fields.fail_field(
          name, fmt::format("{} must hold token ids from 0 to {}, not {}", fields.name_of(name),
                            vocab - 1, to_text(one).substr(0, 32)));
    out.push_back(TokenId{one.get<int>()});
  }
}

void read_sampling(Fields& fields, const ServedModel& model, GenerationRequest& request,
                   Prompt& prompt) {
  SamplingParams& s = prompt.sampling;
  for (const auto& [name, range, value] : kSamplingNumbers) fields.read(name, s.*value, range);
  if (fields.read("top_k", s.top_k, -1, INT32_MAX)) s.top_k = std::max(s.top_k, 0);
  read_logit_bias(fields, model, s);

  int64_t seed = 0;
  const bool by_seed = fields.read("seed", seed, INT64_MIN, INT64_MAX);
  const bool by_sampling_seed = fields.read("sampling_seed", seed, INT64_MIN, INT64_MAX);
  prompt.seeded = by_seed || by_sampling_seed;
  if (prompt.seeded) s.seed = static_cast<uint64_t>(seed);

  fields.read("ignore_eos", s.ignore_eos);
  read_texts(fields, "stop", {kMaxStops, kMaxStopBytes}, s.stop);
  read_stop_regex(fields, request, prompt);
  if (const Json* ids = fields.array("stop_token_ids", kMaxStopIds))
    read_ids(fields, "stop_token_ids", *ids, model, s.stop_ids);

  bool skip_special = true, keep_stop = false;
  fields.read("skip_special_tokens", skip_special);
  request.special = skip_special ? SpecialTokens::skip : SpecialTokens::keep;
  fields.read("include_stop_str_in_output", keep_stop);
  fields.read("no_stop_trim", keep_stop);
  request.stop_text = keep_stop ? StopText::keep : StopText::trim;
  fields.ignore({"spaces_between_special_tokens"});
  read_structure(fields, s);
  refuse_others(fields);
}

void read_rid(Fields& fields, std::string& rid) {
  if (fields.read("rid", rid) && (rid.empty() || rid.size() > kMaxRidBytes))
    fields.fail_field("rid",
                      fmt::format("rid must have 1 to {} bytes, not {}", kMaxRidBytes, rid.size()));
}

namespace {

// A router of SGLang names the service that computes the prompt, and numbers the transfer. Returns
// true if any of the fields is there.
bool read_one_bootstrap(Fields& fields, Bootstrap& out) {
  int64_t room = 0;
  bool given = fields.read("bootstrap_host", out.host);
  if (out.host.size() > kMaxSessionBytes)
    fields.fail_field("bootstrap_host",
                      fmt::format("{} may have {} bytes, not {}", fields.name_of("bootstrap_host"),
                                  kMaxSessionBytes, out.host.size()));
  given |= fields.read("bootstrap_port", out.port, 1, 65535);
  given |= fields.read("bootstrap_room", room, 0, INT64_MAX);
  return given;
}

// For several answers it sends lists, with an element for each. All have to name one service.
void read_bootstrap(Fields& fields, GenerationRequest& request) {
  constexpr std::array kNames = {"bootstrap_host", "bootstrap_port", "bootstrap_room"};
  std::array<const Json*, kNames.size()> given{};
  std::ranges::transform(kNames, given.begin(), [&](const char* name) { return fields.get(name); });
  const auto is_list = [](const Json* value) { return value != nullptr && value->is_array(); };
  const auto list = std::ranges::find_if(given, is_list);
  if (list == given.end()) {
    if (Bootstrap one; read_one_bootstrap(fields, one)) request.bootstrap = std::move(one);
    return;
  }
  const size_t num = (*list)->size();
  for (size_t i = 0; i < given.size(); ++i)
    if (is_list(given.at(i)) &&
        (given.at(i)->size() != num || num == 0 || std::cmp_greater(num, kMaxPrompts)))
      return fields.fail_field(
          kNames.at(i),
          fmt::format("{} must have an element for each answer, at most {}, not {}",
                      fields.name_of(kNames.at(i)), kMaxPrompts, given.at(i)->size()));
  for (size_t k = 0; k < num; ++k) {
    Json object = Json::object();
    for (size_t i = 0; i < given.size(); ++i)
      if (given.at(i) != nullptr)
        object[kNames.at(i)] = is_list(given.at(i)) ? (*given.at(i))[k] : *given.at(i);
    Fields element(object);
    Bootstrap one;
    read_one_bootstrap(element, one);
    if (auto done = element.finish(); !done) return fields.fail(std::move(done.error()));
    if (k > 0 && one != *request.bootstrap)
      return fields.fail_field(
          "bootstrap_host", "the lists of bootstrap_host and bootstrap_port name several services",
          "send a request for each of the services");
    request.bootstrap = std::move(one);
  }
}

// A path cannot name a session whose id has control characters, so it could not be saved.
void check_session_id(Fields& fields, std::string_view id) {
  const std::string name = fields.name_of("session_id");
  if (id.empty() || id.size() > kMaxSessionBytes)
    fields.fail_field("session_id", fmt::format("{} must have 1 to {} bytes, not {}", name,
                                                kMaxSessionBytes, id.size()));
  if (std::ranges::any_of(id, [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
    fields.fail_field("session_id", fmt::format("{} has a control character", name));
}

}  // namespace

void read_envelope(Fields& fields, GenerationRequest& request) {
  if (int priority = 0; fields.read("priority", priority, INT32_MIN, INT32_MAX))
    request.priority = priority;
  const std::pair<const char*, std::string*> names[] = {{"user", &request.user},
                                                        {"routing_key", &request.routing_key},
                                                        {"cache_salt", &request.cache_salt},
                                                        {"extra_key", &request.extra_key}};
  for (const auto& [name, out] : names)
    if (fields.read(name, *out) && out->size() > kMaxLabelBytes)
      fields.fail_field(name, fmt::format("{} may have {} bytes, not {}", fields.name_of(name),
                                          kMaxLabelBytes, out->size()));
  if (fields.read("session_id", request.session)) check_session_id(fields, request.session);
  if (int slot = -1; fields.read("id_slot", slot, -1, INT32_MAX) && slot >= 0)
    request.session = slot_session(slot);
  fields.read("return_token_ids", request.return_token_ids);
  read_bootstrap(fields, request);
  fields.ignore({"metadata", "store", "service_tier", "safety_identifier", "request_id",
                 "prompt_cache_key", "prompt_cache_retention", "log_metrics", "no_logs",
                 "separate_reasoning", "stream_reasoning", "data_parallel_rank",
                 "return_cached_tokens_details"});
}

}  // namespace hocket
