#include <algorithm>
#include <array>
#include <numeric>

#include "compute/models/decoder_weights.h"
#include "compute/models/family.h"

namespace hocket {
namespace {

constexpr std::array<ModelFamily, 8> kFamilies = {{
    {"LlamaForCausalLM", load_decoder_layer},
    {"MistralForCausalLM", load_decoder_layer},
    {"Qwen2ForCausalLM", load_decoder_layer},
    {"Qwen3ForCausalLM", load_decoder_layer},
    {"Qwen3MoeForCausalLM", load_decoder_layer},
    {"DeepseekV2ForCausalLM", load_decoder_layer},
    {"DeepseekV3ForCausalLM", load_decoder_layer},
    {"Glm4MoeForCausalLM", load_decoder_layer},
}};

}  // namespace

std::vector<int> all_experts(const ModelConfig& model) {
  std::vector<int> ids(model.moe.num_experts);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Result<const ModelFamily*> find_family(std::string_view architecture) {
  const auto found = std::ranges::find(kFamilies, architecture, &ModelFamily::architecture);
  if (found == kFamilies.end())
    return fail(ErrorCode::unsupported_model, "no model family for architecture {}", architecture);
  return found;
}

}  // namespace hocket
