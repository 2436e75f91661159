#include "gguf/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace hocket {

double gguf_decimal(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), narrow).ptr;
  std::from_chars(text, end, value);
  return value;
}

GgufConfigReader::GgufConfigReader(const GgufFile& file)
    : file_(file), architecture_(file.metadata().text("general.architecture").value_or("")) {}

std::string GgufConfigReader::full(std::string_view key) const {
  return fmt::format("{}.{}", architecture_, key);
}

std::optional<int64_t> GgufConfigReader::integer(std::string_view key) const {
  const auto value = file_.metadata().integer(full(key));
  if (value) return value;
  const auto list = file_.metadata().numbers(full(key));
  constexpr double kMax = 1LL << 53;
  if (!list || list->empty() || std::ranges::count(*list, list->front()) != std::ssize(*list) ||
      std::abs(list->front()) > kMax)
    return std::nullopt;
  return static_cast<int64_t>(list->front());
}

std::optional<double> GgufConfigReader::number(std::string_view key) const {
  const auto value = file_.metadata().number(full(key));
  return value ? std::optional(gguf_decimal(*value)) : std::nullopt;
}

std::vector<double> GgufConfigReader::for_layers(std::string_view key, int64_t layers) {
  std::vector<double> list = file_.metadata().numbers(full(key)).value_or(std::vector<double>{});
  if (const auto one = file_.metadata().number(full(key)))
    list.assign(static_cast<size_t>(layers), *one);
  if (std::ssize(list) < layers)
    refuse(error(ErrorCode::bad_gguf, "the metadata hold {} numbers {} for {} layers", list.size(),
                 full(key), layers)
               .with_fix("convert the model again with a newer llama.cpp"));
  list.resize(static_cast<size_t>(layers));
  for (double& x : list) x = gguf_decimal(x);
  return list;
}

int64_t GgufConfigReader::required(std::string_view key) {
  if (const auto value = integer(key)) return *value;
  if (const auto list = file_.metadata().numbers(full(key)); list && !list->empty()) {
    refuse_unsupported(fmt::format("{} differs among layers, which is not supported", full(key)));
    return 0;
  }
  refuse(error(ErrorCode::bad_gguf, "the metadata hold no whole number {}, or one for each layer",
               full(key))
             .with_fix("convert the model again with a newer llama.cpp"));
  return 0;
}

void GgufConfigReader::refuse_unsupported(std::string_view what) {
  refuse(error(ErrorCode::unsupported_model, "{}", what)
             .with_fix("take the model's folder in safetensors, if it is supported"));
}

void GgufConfigReader::assume(std::string_view key, std::string to, std::string why) {
  assume({.key = full(key), .to = std::move(to), .why = std::move(why)});
}

int64_t gguf_num_layers(const nlohmann::json& config) {
  constexpr int64_t kMax = 4096;  // the reader of the configuration allows fewer
  return std::clamp<int64_t>(config["num_hidden_layers"].get<int64_t>(), 0, kMax);
}

void read_gguf_heads(GgufConfigReader& reader, nlohmann::json& config) {
  config["num_key_value_heads"] = reader.integer("attention.head_count_kv")
                                      .value_or(config["num_attention_heads"].get<int64_t>());
  const auto key = reader.integer("attention.key_length");
  if (key) config["head_dim"] = *key;
  if (const auto value = reader.integer("attention.value_length"); key && value != key)
    reader.refuse_unsupported(fmt::format("values of {} dims beside keys of {} are not supported",
                                          value.value_or(0), *key));
  constexpr std::string_view kWindows[] = {"gpt-oss", "llama4"};
  if (const auto window = reader.integer("attention.sliding_window");
      window.value_or(0) > 0 && std::ranges::count(kWindows, reader.architecture()) == 0)
    reader.refuse_unsupported(fmt::format("a sliding window of {} tokens is not supported in {}",
                                          *window, reader.architecture()));
}

std::vector<bool> gguf_moe_layers(const GgufConfigReader& reader, const nlohmann::json& config) {
  std::vector<bool> has_experts;
  for (int64_t i = 0; i < gguf_num_layers(config); ++i)
    has_experts.push_back(reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)));
  return has_experts;
}

double gguf_share(int64_t part, int64_t dims) {
  return std::min(1.0, (static_cast<double>(part) + 0.5) / static_cast<double>(dims));
}

void state_gguf_rope_scaling(nlohmann::json& config) {
  if (!config.contains("rope_scaling")) config["rope_scaling"] = {{"rope_type", "default"}};
}

std::vector<double> gguf_divisors(GgufConfigReader& reader, size_t max_divisors) {
  const GgufFile::TensorData found = reader.file().find("rope_freqs.weight");
  std::vector<double> divisors;
  if (found.tensor == nullptr) return divisors;
  if (found.tensor->shape.size() != 1 || found.tensor->type->id != GgufTypeId::f32) {
    reader.refuse(error(ErrorCode::bad_gguf, "rope_freqs.weight is not a list of F32"));
    return divisors;
  }
  constexpr int64_t kMaxPairs = 1 << 15;
  if (found.tensor->shape[0] > kMaxPairs) {
    reader.refuse(error(ErrorCode::bad_gguf,
                        "rope_freqs.weight holds {} numbers; at most {} are allowed",
                        found.tensor->shape[0], kMaxPairs));
    return divisors;
  }
  if (found.data == nullptr) return divisors;  // they change no size, so a plan needs none
  const size_t count = std::min(static_cast<size_t>(found.tensor->shape[0]), max_divisors);
  for (size_t i = 0; i < count; ++i) {
    float divisor;
    std::memcpy(&divisor, found.data + i * 4, 4);
    if (!(divisor > 0) || !std::isfinite(divisor)) {
      reader.refuse(
          error(ErrorCode::bad_gguf, "rope_freqs.weight holds {}, not a number above 0", divisor));
      return divisors;
    }
    divisors.push_back(gguf_decimal(divisor));
  }
  return divisors;
}

}  // namespace hocket
