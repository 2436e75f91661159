#include "engine/check/reference.h"

#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "compute/weights/safetensors.h"
#include "core/bounded_json.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

Result<Json> read_json(const std::filesystem::path& file) {
  if (std::error_code ignored; !std::filesystem::exists(file, ignored))
    return fail(ErrorCode::model_not_found, "there is no {}", file.string());
  HOCKET_TRY(const std::string text, read_text_file(file.string(), kMaxReferenceBytes));
  Json parsed = parse_bounded_json<Json>(text);
  if (parsed.is_discarded())
    return fail(ErrorCode::bad_config, "{} is not JSON, or is nested deeper than {} levels",
                file.string(), kMaxJsonDepth);
  return parsed;
}

// Turns an exception for a wrong type or a missing key into an error.
template <class F>
Result<void> guarded(const std::filesystem::path& file, F&& read) {
  try {
    read();
    return {};
  } catch (const Json::exception& e) {
    return fail(ErrorCode::bad_config, "{}: {}", file.string(), e.what());
  }
}

Tolerance tolerance_of(const Json& json) {
  return {json.at("atol").get<double>(), json.at("rtol").get<double>()};
}

template <class T>
constexpr StoredType kStored = StoredType::f32;
template <>
constexpr StoredType kStored<int32_t> = StoredType::i32;

// Reads arrays of one file; keeps the first error.
class Arrays {
 public:
  explicit Arrays(const WeightSource& source) : source_(source) {}

  bool has(const std::string& name) const { return source_.find(name).has_value(); }
  // Reads an array of any number of rows of `width`; nothing if it is not there.
  void read_rows(const std::string& name, int64_t width, Array<int32_t>& into) {
    const Result<StoredTensor> found = source_.find(name);
    if (found && found->shape.size() == 2) read(name, {found->shape[0], width}, into);
  }
  template <class T>
  void read(const std::string& name, const std::vector<int64_t>& shape, Array<T>& into) {
    if (error_) return;
    const Result<StoredTensor> found = source_.find(name);
    if (!found) {
      error_ = found.error();
    } else if (found->type != kStored<T> || found->shape != shape) {
      error_ = error(ErrorCode::wrong_shape, "the reference's {} is {} [{}], not {} [{}]", name,
                     stored_type_name(found->type), fmt::join(found->shape, ", "),
                     stored_type_name(kStored<T>), fmt::join(shape, ", "));
    } else {
      into.shape = shape;
      into.values.resize(static_cast<size_t>(found->bytes) / sizeof(T));
      std::memcpy(into.values.data(), found->data, found->bytes);
    }
  }
  Result<void> status() const {
    if (error_) return fail(*error_);
    return {};
  }

 private:
  const WeightSource& source_;
  std::optional<Error> error_;
};

// The first module's arrays are named mtp, those of others mtp1, mtp2 and so on.
void read_modules(Arrays& arrays, const ModelConfig& model, ReferencePrompt& prompt) {
  const auto len = static_cast<int64_t>(prompt.ids.size());
  for (int i = 0; i < model.num_mtp_layers; ++i) {
    const std::string stem = fmt::format("{}.mtp{}.", prompt.name, i == 0 ? "" : std::to_string(i));
    if (!arrays.has(stem + "argmax")) break;
    ReferenceModule& module = prompt.modules.emplace_back();
    arrays.read(stem + "logits_last", {std::min<int64_t>(len, 4), model.vocab_size},
                module.logits_last);
    arrays.read(stem + "hidden_last", {model.hidden_size}, module.hidden_last);
    arrays.read(stem + "argmax", {len}, module.argmax);
    arrays.read(stem + "top8_ids", {len, 8}, module.top8_ids);
    arrays.read(stem + "top8_logits", {len, 8}, module.top8_logits);
  }
  arrays.read_rows(prompt.name + ".spec.drafts", kReferenceDrafts, prompt.drafts);
}

void read_prompt(Arrays& arrays, const ModelConfig& model, int64_t steps, ReferencePrompt& prompt) {
  const std::string dot = prompt.name + ".";
  const auto len = static_cast<int64_t>(prompt.ids.size());
  const int64_t width = model.hidden_size, layers = model.num_layers + 1;
  arrays.read(dot + "logits_last", {std::min<int64_t>(len, 4), model.vocab_size},
              prompt.logits_last);
  arrays.read(dot + "logsumexp", {len}, prompt.logsumexp);
  arrays.read(dot + "argmax", {len}, prompt.argmax);
  arrays.read(dot + "top8_ids", {len, 8}, prompt.top8_ids);
  arrays.read(dot + "top8_logits", {len, 8}, prompt.top8_logits);
  arrays.read(dot + "greedy_ids", {steps}, prompt.greedy_ids);
  arrays.read(dot + "greedy_top8_ids", {steps, 8}, prompt.greedy_top8_ids);
  arrays.read(dot + "greedy_top8_logits", {steps, 8}, prompt.greedy_top8_logits);
  if (arrays.has(dot + "hidden")) {
    arrays.read(dot + "hidden", {layers, len, width}, prompt.hidden);
    arrays.read(dot + "final_norm", {len, width}, prompt.final_norm);
  } else {
    arrays.read(dot + "hidden_last", {layers, width}, prompt.hidden);
    arrays.read(dot + "final_norm_last", {width}, prompt.final_norm);
    prompt.hidden.shape = {layers, 1, width};
  }
  for (int l = 0; l < model.num_layers; ++l) {
    const std::string layer = fmt::format("{}layer{}.", dot, l);
    if (!model.layer_is_moe[l] || !arrays.has(layer + "experts")) continue;
    ReferenceRouting& routing = prompt.routing[l];
    arrays.read(layer + "experts", {len, model.moe.top_k}, routing.experts);
    arrays.read(layer + "expert_weights", {len, model.moe.top_k}, routing.weights);
    arrays.read(layer + "router_logits", {len, model.moe.num_experts}, routing.router_logits);
  }
  read_modules(arrays, model, prompt);
}

// Returns the name of the angles of one kind of layers: its own, or that of all layers.
std::string rope_name(const WeightSource& source, std::string_view kind) {
  const std::string own = fmt::format("rope.{}_attention.inv_freq", kind);
  return source.find(own).has_value() ? own : "rope.inv_freq";
}

void read_factor(const Json& json, const std::string& name, ReferenceRope& rope) {
  rope.factor = json.at("rope_factors_on_cos_and_sin").at(name).get<double>();
}

// Returns what is wrong with the lengths; empty if nothing is.
std::string_view wrong_lengths(const Recorded& r) {
  const size_t num = r.completion.size();
  if (r.prompt.empty() || num == 0 || r.logprobs.size() != num || r.margins.size() != num)
    return "completion is empty or of unequal lengths";
  if (r.drafts.size() != r.draft_margins.size() ||
      (!r.drafts.empty() && r.drafts.size() != num - 1))
    return "completion has drafts for other tokens than all behind its first";
  return {};
}

}  // namespace

std::vector<TokenId> tokens_of(const nlohmann::json& json) {
  std::vector<TokenId> ids;
  for (const int id : json) ids.push_back(TokenId{id});
  return ids;
}

Result<Reference> Reference::read(const std::filesystem::path& folder, const ModelConfig& model) {
  const std::filesystem::path file = folder / "reference.json";
  HOCKET_TRY(const Json json, read_json(file));
  HOCKET_TRY(const auto source, SafetensorsFile::open(folder / "reference.safetensors"));
  Reference reference;
  int64_t steps = 0;
  HOCKET_TRY_VOID(guarded(file, [&] {
    const Json& tolerance = json.at("tolerance");
    reference.logits = tolerance_of(tolerance.at("logits"));
    reference.hidden = tolerance_of(tolerance.at("hidden"));
    reference.expert_weights = tolerance_of(tolerance.at("expert_weights"));
    reference.bf16_logits_max_abs = json.at("measured").value("bf16_compute_logits_max_abs", 0.0);
    if (model.rope.rotary_dim > 0) read_factor(json, rope_name(*source, "full"), reference.rope);
    if (model.local_rope.rotary_dim > 0)
      read_factor(json, rope_name(*source, "sliding"), reference.local_rope);
    steps = json.at("greedy_steps").get<int64_t>();
    for (const auto& [name, prompt] : json.at("prompts").items()) {
      if (!prompt.is_object() || prompt.contains("images")) continue;  // images are not computed
      reference.prompts.push_back({.name = name, .ids = tokens_of(prompt.at("ids"))});
    }
  }));
  for (const ReferencePrompt& prompt : reference.prompts)
    for (const TokenId id : prompt.ids)
      if (value(id) < 0 || value(id) >= model.vocab_size)
        return fail(ErrorCode::bad_config, "{}: {} has token {} outside the vocabulary of {}",
                    file.string(), prompt.name, value(id), model.vocab_size);

  Arrays arrays(*source);
  const auto read_angles = [&](std::string_view kind, const RopeConfig& config, ReferenceRope& to) {
    if (config.rotary_dim == 0) return;
    Array<float> inv_freq;
    arrays.read(rope_name(*source, kind), {config.rotary_dim / 2}, inv_freq);
    to.inv_freq = std::move(inv_freq.values);
  };
  read_angles("full", model.rope, reference.rope);
  if (model.local.num_heads > 0) read_angles("sliding", model.local_rope, reference.local_rope);
  for (ReferencePrompt& prompt : reference.prompts) read_prompt(arrays, model, steps, prompt);
  HOCKET_TRY_VOID(arrays.status());
  return reference;
}

Result<std::vector<Recorded>> read_recorded(const std::filesystem::path& file) {
  HOCKET_TRY(const Json json, read_json(file));
  std::vector<Recorded> recorded;
  HOCKET_TRY_VOID(guarded(file, [&] {
    for (const Json& completion : json.at("completions"))
      recorded.push_back({.kind = completion.at("kind").get<std::string>(),
                          .prompt = tokens_of(completion.at("prompt_token_ids")),
                          .completion = tokens_of(completion.at("completion_token_ids")),
                          .logprobs = completion.at("logprobs").get<std::vector<float>>(),
                          .margins = completion.at("margins").get<std::vector<float>>(),
                          .drafts = tokens_of(completion.value("mtp_drafts", Json::array())),
                          .draft_margins = completion.value("mtp_margins", std::vector<float>())});
  }));
  for (const Recorded& r : recorded)
    if (const std::string_view wrong = wrong_lengths(r); !wrong.empty())
      return fail(ErrorCode::bad_config, "{}: a {} {}", file.string(), r.kind, wrong);
  return recorded;
}

}  // namespace hocket
