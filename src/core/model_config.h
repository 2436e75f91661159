// Describes a decoder-only model, independent of its file format (compute/weights/hf_config.h reads
// the files).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/dtype.h"
#include "core/visible_keys.h"

namespace hocket {

// Rotary embedding and its scaling; the formulas are in compute/kernels/rope.h.
struct RopeConfig {
  // proportional: of the rotary_dim / 2 pairs, the first turning_dim / 2 are rotated. divided: each
  // pair's frequency is divided by a number of its own.
  enum class Scaling : uint8_t { none, linear, llama3, yarn, proportional, divided };
  // half: dim i is rotated with dim i + rotary_dim / 2. interleaved: dim 2i with 2i + 1.
  enum class Style : uint8_t { half, interleaved };
  Scaling scaling = Scaling::none;
  double theta = 10000;
  int rotary_dim = 0;  // even; dims beyond it are not rotated; 0: none is
  Style style = Style::half;
  int turning_dim = 0;           // for proportional
  std::vector<double> divisors;  // for divided: [rotary_dim / 2]
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // for llama3
  double original_context = 0;                       // for llama3 and yarn
  double beta_fast = 32, beta_slow = 1;              // for yarn
  bool truncate = true;                              // for yarn
  std::optional<double> attention_factor;            // for yarn
  double mscale = 0, mscale_all_dim = 0;             // for yarn
  // Queries at position p are multiplied by 1 + query_beta * ln(1 + floor(p / original_context)).
  double query_beta = 0;  // 0: queries are not scaled
  int query_shift = 0;    // added to p there
};

// Multi-head latent attention: keys and values of all heads come from one latent per token, which
// has kv_rank + rope_dim numbers. A head's key is [nope_dim | rope_dim].
struct MlaConfig {
  int q_rank = 0;   // 0: queries come from one projection
  int kv_rank = 0;  // 0: the model has no latent
  int nope_dim = 0, rope_dim = 0, value_dim = 0;
  double norm_eps = 1e-6;  // for the norms of the ranks
};

// Grouped-query attention of one kind of layers.
struct AttentionConfig {
  int num_heads = 0;  // 0: no layer is of this kind
  int num_kv_heads = 0;
  int key_dim = 0, value_dim = 0;  // sizes of a head; queries have key_dim
  VisibleKeys visible;             // which keys a query sees
  bool sinks = false;              // the softmax of each head has a learned logit that has no value
  // q and k of each head are divided by their root mean square after the rotation.
  bool unit_norms = false;
  bool values_are_keys = false;  // values are the projection of keys, without their norm
};

// The function between the two products of an MLP, of its gate g and its up u. u' is u within
// [-limit, limit].
struct Activation {
  enum class Kind : uint8_t {
    silu,          // silu(g) * u
    limited_silu,  // min(silu(g), limit) * u'
    limited_gate,  // (u' + 1) * (g' * sigmoid(1.702 g')), g' = min(g, limit)
    gelu_tanh,     // 0.5 g * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) * u
  };
  Kind kind = Kind::silu;
  float limit = 0;  // above 0 for the limited ones
};

// Rows that the convolution of a delta net adds up: a token's own and those before it.
inline constexpr int kConvTaps = 4;

// Linear attention by a gated delta net (compute/kernels/delta_net.h). In place of keys and values
// of all tokens, a layer keeps a state [key_dim, value_dim] for each value head.
struct DeltaNetConfig {
  int num_key_heads = 0;    // 0: no layer is of this kind
  int num_value_heads = 0;  // a multiple of num_key_heads: neighbours share a key head
  int key_dim = 0, value_dim = 0;
  // True if the columns of the projections are sorted by key head, [q k v z] and [b a] of each.
  bool grouped = false;
  // Each channel of a key has a decay of its own, and the result's gate is a sigmoid (KDA). Both
  // come from a low-rank pair of products: the first gives key_dim numbers. One value head a key.
  bool channel_decay = false;

  int values_a_key() const { return num_value_heads / num_key_heads; }
  int key_columns() const { return num_key_heads * key_dim; }
  int value_columns() const { return num_value_heads * value_dim; }
  // Channels of the convolution: queries, keys and values of all heads.
  int channels() const { return 2 * key_columns() + value_columns(); }
  // Columns that decays and the strengths of corrections are made from.
  int gate_columns() const {
    return (channel_decay ? key_columns() : num_value_heads) + num_value_heads;
  }
};

struct MoeConfig {
  enum class Score : uint8_t { softmax, sigmoid };
  // The score of a group of experts: its best choice score, or the sum of its two best.
  enum class GroupScore : uint8_t { best, two_best };
  // The form in which files may hold all experts of a layer as one tensor, beside one tensor each:
  // [experts, outputs, inputs] or [experts, inputs, outputs], gate and up in one. apart: [experts,
  // outputs, inputs], gate and up in one tensor each.
  enum class Stacked : uint8_t { never, outputs_first, inputs_first, apart };

  int num_experts = 0;
  int top_k = 0;
  int intermediate_size = 0;         // size of one expert
  int shared_intermediate_size = 0;  // size of all shared experts as one MLP; 0: none
  bool shared_gate = false;          // their output is multiplied by sigmoid(gate . row)
  Score score = Score::softmax;
  bool correction_bias = false;  // choice score = score + bias; the weights do not use the bias
  // Groups of neighbouring experts; experts are chosen from the best top_groups only.
  int num_groups = 1;
  int top_groups = 1;
  GroupScore group_score = GroupScore::best;
  bool norm_topk_prob = false;  // divide the chosen weights by their sum
  double scaling_factor = 1;    // then multiply by this
  double output_scale = 1;      // multiplies the sum over experts, without the shared experts
  bool expert_scales = false;   // at last, a weight is multiplied by a number of its expert
  double logit_scale = 1;       // multiplies the gate's product
  bool gate_bias = false;       // the gate's product has a bias, which the weights do use
  // The weight multiplies the row that the expert gets, not the one that it gives; needs top_k 1.
  bool weighted_inputs = false;
  Activation activation, shared_activation;
  // [num_layers] the limits of limited_silu in experts and in shared experts, 0: none; or empty.
  std::vector<float> limits, shared_limits;
  Stacked stacked = Stacked::never;
  bool interleaved = false;  // in such tensors outputs of gate and up alternate, else gate is first

  Activation activation_in(int layer) const {
    return limits.empty() ? activation : limited(limits[layer]);
  }
  Activation shared_activation_in(int layer) const {
    return shared_limits.empty() ? shared_activation : limited(shared_limits[layer]);
  }
  static Activation limited(float limit) {
    if (limit == 0) return {};
    return {Activation::Kind::limited_silu, limit};
  }
};

// The format of quantized matrices in the files. Formulas: docs/models.md, "number formats".
struct QuantConfig {
  enum class Layout : uint8_t {
    none,
    fp8_block,     // DeepSeek, Qwen: F8_E4M3 and weight_scale_inv of 128 x 128 blocks
    fp8_channel,   // compressed-tensors: F8_E4M3 and weight_scale [n, 1]
    int8_channel,  // compressed-tensors W8A8: I8 and weight_scale [n, 1]
    awq,           // qweight [k, n/8], qzeros, scales
    gptq,          // qweight [k/8, n], qzeros, scales, g_idx
    packed,        // compressed-tensors pack-quantized: weight_packed [n, k/8], weight_scale
    mxfp4,         // weight_packed [n, k/2], weight_scale [n, k/32]; gpt-oss: _blocks, _scales
    mxfp8,         // F8_E4M3 and weight_scale [n, k/32], or weight_scale_inv
    nvfp4,         // weight_packed or weight [n, k/2], weight_scale [n, k/16], a scale of all
    gguf,          // each tensor of a GGUF file says its own format
  };
  Layout layout = Layout::none;
  int group = 0;                  // values of k that share one scale; 0: all
  bool gptq_zeros_less_1 = true;  // gptq: the stored zero points are one too small
  // gguf: the format in memory of the matrices that have most of the bytes.
  WeightFormat most = WeightFormat::bf16;
  // Modules that are not quantized: names, parts of names, or patterns after "re:".
  std::vector<std::string> skipped;
};

struct ModelConfig {
  std::string architecture;  // for example "Qwen3MoeForCausalLM"
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;           // for q and k; need not be hidden_size / num_heads
  int value_dim = 0;          // for v of grouped-query attention; 0: head_dim
  int intermediate_size = 0;  // for dense MLPs
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  DType stored_dtype = DType::bf16;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm on each head of q and k
  bool qk_norm_over_heads =
      false;                     // with qk_norm: one norm over all heads of q, one over those of k
  bool attention_gate = false;   // attention's result is multiplied by the sigmoid of a projection
  bool head_gates = false;       // each head's result is multiplied by a sigmoid of its own
  bool centred_norms = false;    // files hold w - 1 of norms, except those of delta nets
  double softmax_scale = 0;      // for attention scores
  bool sinks = false;            // as AttentionConfig::sinks, in layers that are not local
  double value_scale = 1;        // values are multiplied by it before they are rounded and stored
  bool value_norm = false;       // v of each head is divided by its root mean square
  bool values_are_keys = false;  // as that of AttentionConfig, in layers that are not local
  // The results of attention and of MLPs pass norms before they are added, routed and shared
  // experts have norms of their own before them, and a layer's output is multiplied by a number.
  bool result_norms = false;
  double embedding_scale = 1;  // multiplies the rows of the embedding, as fp32
  double logit_cap = 0;        // logits l become cap * tanh(l / cap); 0: no cap
  RopeConfig rope;
  // Layers that see near keys only have heads and angles of their own; softmax_scale is for all.
  AttentionConfig local;
  RopeConfig local_rope;
  std::vector<bool> layer_is_local;  // [num_layers]; or empty
  // True beside a store: layers with chunks keep all tokens and are no window layers.
  bool keeps_chunks = false;
  MlaConfig mla;  // kv_rank == 0: grouped-query attention
  DeltaNetConfig delta_net;
  std::vector<bool> layer_is_linear;  // [num_layers]: a delta net instead of attention; or empty
  QuantConfig quant;
  int num_mtp_layers = 0;  // multi-token-prediction modules in the files
  int num_mtp_loaded = 0;  // those of them that are loaded
  // Such a module has local attention and a dense MLP, and takes the rows of the model before its
  // final norm; else it is like the layers that see all keys, and takes them after it.
  bool local_mtp = false;
  MoeConfig moe;                   // num_experts == 0: a dense model
  std::vector<bool> layer_is_moe;  // [num_layers]
  std::vector<TokenId> eos_ids;    // union of config.json and generation_config.json
  std::optional<TokenId> bos_id;
  // Parts of the files that are not loaded, by their key in config.json ("vision_config"), and the
  // tokens that stand for their input (an image, a video), which prompts may not hold.
  std::vector<std::string> left_aside;
  std::vector<TokenId> placeholder_ids;

  bool is_local(int layer) const { return !layer_is_local.empty() && layer_is_local[layer]; }
  // Return the heads and the angles of a layer with grouped-query attention.
  AttentionConfig attention(int layer) const { return is_local(layer) ? local : far_attention(); }
  AttentionConfig far_attention() const {
    return {.num_heads = num_heads,
            .num_kv_heads = num_kv_heads,
            .key_dim = head_dim,
            .value_dim = value_dim > 0 ? value_dim : head_dim,
            .sinks = sinks,
            .values_are_keys = values_are_keys};
  }
  const RopeConfig& rope_of(int layer) const { return is_local(layer) ? local_rope : rope; }
  // Columns of a query head of `key_dim` in the projection of grouped-query attention.
  int query_columns(int key_dim) const { return attention_gate ? 2 * key_dim : key_dim; }
  bool is_linear(int layer) const { return !layer_is_linear.empty() && layer_is_linear[layer]; }
  int num_linear_layers() const {
    return static_cast<int>(std::ranges::count(layer_is_linear, true));
  }
  // Returns which keys window layers see; unbounded if the model has none. Their keys and values
  // have pages of their own, which are given up.
  VisibleKeys window() const {
    const bool all = std::ranges::count(layer_is_local, true) == num_layers;
    return layer_is_local.empty() || all || keeps_chunks ? VisibleKeys{} : local.visible;
  }
  bool is_windowed(int layer) const { return is_local(layer) && window().bounded(); }
  // Layers whose keys and values are kept for each token.
  int num_kv_layers() const { return num_layers - num_linear_layers(); }
  // Returns the model of one layer that a module for multi-token prediction is.
  ModelConfig mtp_module() const {
    ModelConfig module = *this;
    module.num_layers = 1;
    module.num_mtp_layers = module.num_mtp_loaded = 0;
    module.layer_is_linear.clear();
    module.layer_is_local.assign(local_mtp ? 1 : 0, true);
    module.layer_is_moe.assign(1, moe.num_experts > 0 && !local_mtp);
    return module;
  }
};

// Sampling defaults of generation_config.json; an unset field has the default of SamplingParams.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};

}  // namespace hocket
