#include "compute/weights/gguf_fused.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace hocket {
namespace {

// The beginning of a name with its layer; -1: the name has none.
struct LayerName {
  std::string before;  // "blk.3."
  int64_t layer = -1;
};
LayerName layer_of(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  LayerName out;
  if (!name.starts_with(kLayer)) return out;
  const char* const end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data() + kLayer.size(), end, out.layer);
  if (problem != std::errc() || rest == end || *rest != '.') return {};
  out.before = name.substr(0, static_cast<size_t>(rest - name.data()) + 1);
  return out;
}

// Reads numbers of the metadata, under the name of the architecture.
class LayerNumbers {
 public:
  LayerNumbers(const GgufMetadata& metadata, int64_t layer)
      : metadata_(metadata),
        architecture_(metadata.text("general.architecture").value_or("")),
        layer_(layer) {}

  // The number of this layer, or of all. Numbers that no model has count as missing.
  std::optional<int64_t> number(std::string_view key) const {
    constexpr int64_t kMax = 1 << 24;
    const std::string full = fmt::format("{}.{}", architecture_, key);
    std::optional<int64_t> found = metadata_.integer(full);
    if (const auto list = metadata_.numbers(full); list && layer_ < std::ssize(*list))
      if (const double one = (*list)[static_cast<size_t>(layer_)]; one >= 0 && one <= kMax)
        found = static_cast<int64_t>(one);
    return found && *found >= 0 && *found <= kMax ? found : std::nullopt;
  }
  // Dims of a head of keys or values.
  std::optional<int64_t> head_dim(std::string_view key) const {
    const bool sliding = number("attention.sliding_window_pattern").value_or(0) != 0;
    if (const auto own = number(fmt::format("{}_swa", key)); sliding && own) return own;
    if (const auto all = number(key)) return all;
    const auto hidden = number("embedding_length"), heads = number("attention.head_count");
    return hidden && heads.value_or(0) > 0 ? std::optional(*hidden / *heads) : std::nullopt;
  }

 private:
  const GgufMetadata& metadata_;
  std::string_view architecture_;
  int64_t layer_;
};

// Gate and up of all experts: the rows of gate first.
GgufFusedPart find_half(const GgufFile& file, const GgufLocation& location) {
  GgufFusedPart part;
  for (const std::string_view half : {".ffn_gate_exps.weight", ".ffn_up_exps.weight"}) {
    if (location.expert < 0 || !location.name.ends_with(half)) continue;
    part.name =
        location.name.substr(0, location.name.size() - half.size()) + ".ffn_gate_up_exps.weight";
    part.found = file.find(part.name);
    if (part.found.tensor == nullptr || part.found.tensor->shape.size() != 3) return part;
    const int64_t both = part.found.tensor->shape[1];
    part.rows = both % 2 == 0 ? both / 2 : 0;
    part.first = half.contains("up") ? part.rows : 0;
  }
  return part;
}

// Rows of attn_qkv, [q | k | v]. Queries are all that keys and values leave, since those of some
// families have gates beside them.
GgufFusedPart find_of_attention(const GgufFile& file, const GgufLocation& location) {
  GgufFusedPart part;
  const auto [before, layer] = layer_of(location.name);
  for (const std::string_view last : {".weight", ".bias"})
    for (const std::string_view which : {"attn_q", "attn_k", "attn_v"}) {
      if (layer < 0 || location.name != fmt::format("{}{}{}", before, which, last)) continue;
      part.name = fmt::format("{}attn_qkv{}", before, last);
      part.found = file.find(part.name);
      if (part.found.tensor == nullptr || part.found.tensor->shape.size() > 2) return part;
      const LayerNumbers numbers(file.metadata(), layer);
      const auto heads = numbers.number("attention.head_count_kv");
      const auto key = numbers.head_dim("attention.key_length");
      const auto value = numbers.head_dim("attention.value_length");
      if (!heads || !key || !value) return part;
      const int64_t keys = *heads * *key, values = *heads * *value;
      const int64_t queries = part.found.tensor->shape[0] - keys - values;
      if (queries < 1) return part;
      if (which == "attn_q") part.rows = queries;
      if (which == "attn_k") part.first = queries, part.rows = keys;
      if (which == "attn_v") part.first = queries + keys, part.rows = values;
    }
  return part;
}

}  // namespace

GgufFusedPart find_fused(const GgufFile& file, const GgufLocation& location) {
  GgufFusedPart part = find_half(file, location);
  return part.found.tensor != nullptr ? part : find_of_attention(file, location);
}

}  // namespace hocket
