// Reference outputs of Hugging Face beside a model: reference.json and reference.safetensors, or
// the expected.json of the bundled model. Format: tests/golden/README.md.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/model_config.h"

namespace hocket {

inline constexpr int kReferenceDrafts = 3;  // drafts of a step in ReferencePrompt::drafts
inline constexpr size_t kMaxReferenceBytes = 64 << 20;

// The tolerance of a comparison: |got - want| <= atol + rtol * |want|.
struct Tolerance {
  double atol = 0, rtol = 0;
};

// A dense array, last dimension innermost.
template <class T>
struct Array {
  std::vector<int64_t> shape;
  std::vector<T> values;

  // Returns row r of the array taken as a matrix of its innermost dimension.
  std::span<const T> row(int64_t r) const {
    const auto width = static_cast<size_t>(shape.back());
    return std::span(values).subspan(r * width, width);
  }
};

struct ReferenceRouting {
  Array<int32_t> experts;               // [T, k], ascending
  Array<float> weights, router_logits;  // [T, k], [T, experts]
};

// Outputs of a module for multi-token prediction over a prompt.
struct ReferenceModule {
  Array<float> logits_last, top8_logits, hidden_last;  // [min(T, 4), vocabulary], [T, 8], [hidden]
  Array<int32_t> argmax, top8_ids;                     // [T], [T, 8]
};

struct ReferencePrompt {
  std::string name;                     // "p0"
  std::vector<TokenId> ids;             // [T]
  Array<float> logits_last;             // [min(T, 4), vocabulary]
  Array<float> logsumexp, top8_logits;  // [T], [T, 8]
  Array<int32_t> argmax, top8_ids;      // [T], [T, 8]
  Array<float> hidden, final_norm;      // [L + 1, R, hidden], [R, hidden]: the last R positions
  Array<int32_t> greedy_ids, greedy_top8_ids;  // [G], [G, 8]
  Array<float> greedy_top8_logits;
  std::map<int, ReferenceRouting> routing;  // routing by layer
  std::vector<ReferenceModule> modules;
  // [steps, drafts]: row m - 1 holds what is drafted when m tokens have been generated.
  Array<int32_t> drafts;
};

struct ReferenceRope {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  double factor = 1;            // on cos and sin
};

struct Reference {
  Tolerance logits, hidden, expert_weights;
  double bf16_logits_max_abs = 0;  // the reference's own error in bf16; 0: not measured
  // The angles of layers that see all keys and of local ones; empty where nothing is rotated.
  ReferenceRope rope, local_rope;
  std::vector<ReferencePrompt> prompts;

  // Returns of how many modules for multi-token prediction there are outputs.
  int num_modules() const {
    size_t most = 0;
    for (const ReferencePrompt& prompt : prompts) most = std::max(most, prompt.modules.size());
    return static_cast<int>(most);
  }
  // Reads a reference. Errors: model_not_found (no such files), bad_config (JSON), missing_tensor,
  // wrong_shape.
  static Result<Reference> read(const std::filesystem::path& folder, const ModelConfig& model);
};

// Returns the token ids of a JSON array. Throws nlohmann::json::exception if one is no number.
std::vector<TokenId> tokens_of(const nlohmann::json& json);

// One greedy completion of the bundled model, computed in fp32.
struct Recorded {
  std::string kind;
  std::vector<TokenId> prompt, completion;
  std::vector<float> logprobs, margins;  // per completion token; margin: best - second logit
  // The first drafts of the module for multi-token prediction, for the second completion token on,
  // with their margins; empty if the model had none.
  std::vector<TokenId> drafts;
  std::vector<float> draft_margins;
};

inline bool has_drafts(const std::vector<Recorded>& recorded) {
  return std::ranges::any_of(recorded, [](const Recorded& one) { return !one.drafts.empty(); });
}

// Reads the completions of a file. Errors: model_not_found, bad_config.
Result<std::vector<Recorded>> read_recorded(const std::filesystem::path& file);

}  // namespace hocket
