// What a decoder-only model is, independent of the file it came from (compute/weights/hf_config.h
// reads those).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/dtype.h"

namespace hocket {

// Rotary embedding and its scaling; formulas in compute/kernels/rope.h.
struct RopeConfig {
  enum class Scaling : uint8_t { none, linear, llama3, yarn };
  Scaling scaling = Scaling::none;
  double theta = 10000;
  int rotary_dim = 0;  // even; dims beyond it pass through
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double original_context = 0;                       // llama3, yarn
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn
  std::optional<double> attention_factor;            // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn
};

struct MoeConfig {
  int num_experts = 0;
  int top_k = 0;
  int intermediate_size = 0;    // of one expert
  bool norm_topk_prob = false;  // divide the chosen weights by their sum
};

struct ModelConfig {
  std::string architecture;  // "Qwen3MoeForCausalLM"
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;           // need not be hidden_size / num_heads
  int intermediate_size = 0;  // of dense MLPs
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  DType stored_dtype = DType::bf16;
  RopeConfig rope;
  MoeConfig moe;                   // num_experts == 0: a dense model
  std::vector<bool> layer_is_moe;  // [num_layers]
  std::vector<TokenId> eos_ids;    // union of config.json and generation_config.json
  std::optional<TokenId> bos_id;
};

// Sampling defaults of generation_config.json; unset fields fall back to those of SamplingParams.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};

}  // namespace hocket
