#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/choose.h"
#include "compute/weights/safetensors.h"
#include "core/bounded_json.h"
#include "engine/check/checker.h"
#include "engine/check/quantity.h"
#include "engine/check/reference.h"
#include "engine/sampler.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

// Tolerances of fp32 here against fp64 in the reference, on logits up to 60.
constexpr Tolerance kProcessed = {1e-5, 1e-6};
constexpr Tolerance kLogprobs = {1e-5, 1e-6};
constexpr double kMaskedIn = -1e29;  // the file writes -1e30 for minus infinity

constexpr double kSmallestFloat = std::numeric_limits<float>::min();

struct SamplingCase {
  std::string key;
  SamplingParams params;
  std::vector<TokenId> prompt, output;
  int kept = 0, greedy_token = 0;
  std::vector<std::pair<int, double>> top;  // log-probabilities of untouched logits
  std::vector<float> logits;
  std::vector<double> processed, probabilities;
};

SamplingParams params_of(const Json& json) {
  SamplingParams p;
  p.temperature = json.value("temperature", 1.0);
  p.top_p = json.value("top_p", 1.0);
  p.top_k = std::max(json.value("top_k", 0), 0);
  p.min_p = json.value("min_p", 0.0);
  p.frequency_penalty = json.value("frequency_penalty", 0.0);
  p.presence_penalty = json.value("presence_penalty", 0.0);
  p.repetition_penalty = json.value("repetition_penalty", 1.0);
  p.min_new_tokens = json.value("min_tokens", 0);
  if (json.contains("stop_token_ids")) p.stop_ids = tokens_of(json["stop_token_ids"]);
  if (json.contains("allowed_token_ids")) p.allowed_ids = tokens_of(json["allowed_token_ids"]);
  std::vector<LogitBias::Entry> biases;
  if (json.contains("logit_bias"))
    for (const auto& [id, bias] : json["logit_bias"].items())
      biases.emplace_back(TokenId{std::stoi(id)}, bias.get<float>());
  std::ranges::sort(biases);
  p.logit_bias = LogitBias(std::move(biases));
  std::ranges::sort(p.allowed_ids);
  return p;
}

template <class T>
Result<std::vector<T>> array_of(const WeightSource& source, const std::string& name,
                                StoredType type) {
  HOCKET_TRY(const StoredTensor found, source.find(name));
  if (found.type != type)
    return fail(ErrorCode::wrong_shape, "{} is {}, not {}", name, stored_type_name(found.type),
                stored_type_name(type));
  std::vector<T> values(static_cast<size_t>(found.bytes) / sizeof(T));
  std::memcpy(values.data(), found.data, found.bytes);
  return values;
}

struct Cases {
  Tolerance probabilities;
  std::vector<SamplingCase> cases;
};

Result<Cases> read_cases(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "reference.json";
  if (std::error_code ignored; !std::filesystem::exists(file, ignored))
    return fail(ErrorCode::model_not_found, "there is no {}", file.string());
  HOCKET_TRY(const std::string text, read_text_file(file.string(), kMaxReferenceBytes));
  HOCKET_TRY(const auto source, SafetensorsFile::open(folder / "reference.safetensors"));
  Cases read;
  try {
    const Json json = parse_bounded_json<Json>(text);
    if (json.is_discarded())
      return fail(ErrorCode::bad_config, "{} is not JSON, or is nested deeper than {} levels",
                  file.string(), kMaxJsonDepth);
    const Json& tolerance = json.at("tolerance").at("probs");
    read.probabilities = {tolerance.at("atol").get<double>(), tolerance.at("rtol").get<double>()};
    for (const Json& one : json.at("cases"))
      read.cases.push_back(
          {.key = one.at("key").get<std::string>(),
           .params = params_of(one.at("settings")),
           .prompt = tokens_of(one.at("prompt_ids")),
           .output = tokens_of(one.at("output_ids")),
           .kept = one.at("kept").get<int>(),
           .greedy_token = one.at("greedy_token").get<int>(),
           .top = one.at("raw_logprobs_top5").get<std::vector<std::pair<int, double>>>()});
  } catch (const std::exception& e) {
    return fail(ErrorCode::bad_config, "{}: {}", file.string(), e.what());
  }
  for (SamplingCase& one : read.cases) {
    HOCKET_TRY(one.logits, array_of<float>(*source, one.key + ".logits", StoredType::f32));
    HOCKET_TRY(one.processed, array_of<double>(*source, one.key + ".processed", StoredType::f64));
    HOCKET_TRY(one.probabilities, array_of<double>(*source, one.key + ".probs", StoredType::f64));
  }
  return read;
}

struct Comparison {
  Quantity processed{"sampling: processed logits", kProcessed};
  Quantity masked{"sampling: masked tokens", {}};
  Quantity probabilities;
  Quantity kept{"sampling: tokens kept", {}};
  Quantity greedy{"sampling: greedy token", {}};
  Quantity logprobs{"sampling: logprobs", kLogprobs};

  void run(Backend& backend, const SamplingCase& want);
};

void Comparison::run(Backend& backend, const SamplingCase& want) {
  const auto vocab = static_cast<int>(want.logits.size());
  const Origin origin = {want.key};
  Sampler sampler(vocab, 1);
  SampleRow row{
      .params = &want.params, .prompt = want.prompt, .generated = want.output, .end_ids = {}};
  const Sampler::Distribution got = sampler.distribution(backend, want.logits, row);
  int num_kept = 0, kept_below_float = 0;
  for (int i = 0; i < vocab; ++i) {
    const bool cut = want.processed[i] < kMaskedIn;
    masked.equal(std::isinf(got.processed[i]), cut, origin);
    if (!cut) processed.near(got.processed[i], want.processed[i], origin);
    probabilities.near(got.probabilities[i], want.probabilities[i], origin);
    num_kept += got.probabilities[i] > 0;
    kept_below_float += want.probabilities[i] > 0 && want.probabilities[i] < kSmallestFloat;
  }
  // A probability that no float can hold is zero here.
  kept.equal(num_kept, want.kept - kept_below_float, origin);

  const View<const float> logits(want.logits.data(), 1, vocab);
  SamplingParams params = want.params;
  params.temperature = 0;
  row.params = &params;
  SampledToken token;
  std::unique_ptr<PositionLogprobs> unused;
  sampler.sample(backend, logits, std::span(&row, 1), std::span(&token, 1), std::span(&unused, 1));
  greedy.equal(token.failed ? -1 : value(token.token), want.greedy_token, origin);

  const PositionLogprobs top = Sampler::position_logprobs(
      backend, logits, 0, TokenId{want.top[0].first}, static_cast<int>(want.top.size()));
  logprobs.near(top.logprob, want.top[0].second, origin);
  for (size_t i = 0; i < want.top.size(); ++i) {
    logprobs.near(top.top[i].logprob, want.top[i].second, origin);
    greedy.equal(value(top.top[i].token), want.top[i].first, origin);
  }
}

}  // namespace

Result<std::vector<CheckLine>> check_sampling(const std::filesystem::path& folder) {
  HOCKET_TRY(const Cases cases, read_cases(folder));
  HOCKET_TRY(const Isa isa, choose_isa());
  WorkerPool workers({.num_workers = 1});
  HOCKET_TRY(Backend backend, Backend::create(isa, workers, 1 << 20));
  Comparison comparison{.probabilities = Quantity("sampling: probabilities", cases.probabilities)};
  for (const SamplingCase& one : cases.cases) comparison.run(backend, one);
  std::vector<CheckLine> lines;
  for (const Quantity* quantity :
       {&comparison.processed, &comparison.masked, &comparison.probabilities, &comparison.kept,
        &comparison.greedy, &comparison.logprobs})
    lines.push_back(quantity->line());
  return lines;
}

}  // namespace hocket
