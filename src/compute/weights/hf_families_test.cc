// Each family as published: the important fields of config.json, and their meaning.
#include "compute/weights/hf_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "compute/weights/config_testing.h"

namespace hocket {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Scaling = RopeConfig::Scaling;
using Style = RopeConfig::Style;

constexpr double kScale128 = 0.08838834764831845;

const std::string kLlama31 = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
  "bos_token_id":128000,"eos_token_id":[128001,128008,128009],"hidden_act":"silu",
  "hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":131072,"mlp_bias":false,
  "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"pretraining_tp":1,
  "rms_norm_eps":1e-05,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
  "original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
  "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":128256})";

const std::string kQwen25 = R"({"architectures":["Qwen2ForCausalLM"],"bos_token_id":151643,
  "eos_token_id":151645,"hidden_act":"silu","hidden_size":3584,"intermediate_size":18944,
  "max_position_embeddings":32768,"max_window_layers":28,"num_attention_heads":28,
  "num_hidden_layers":28,"num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
  "sliding_window":131072,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
  "use_sliding_window":false,"vocab_size":152064})";

const std::string kQwen3 = R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
  "bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,
  "hidden_act":"silu","hidden_size":4096,"intermediate_size":12288,"max_position_embeddings":40960,
  "max_window_layers":94,"mlp_only_layers":[],"moe_intermediate_size":1536,"norm_topk_prob":true,
  "num_attention_heads":64,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":94,
  "num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,"rope_scaling":null,
  "rope_theta":1000000.0,"router_aux_loss_coef":0.001,"sliding_window":null,
  "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,
  "vocab_size":151936})";

const std::string kV2Lite = R"({"architectures":["DeepseekV2ForCausalLM"],"attention_bias":false,
  "aux_loss_alpha":0.001,"bos_token_id":100000,"eos_token_id":100001,"first_k_dense_replace":1,
  "hidden_act":"silu","hidden_size":2048,"intermediate_size":10944,"kv_lora_rank":512,
  "max_position_embeddings":163840,"moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,
  "n_routed_experts":64,"n_shared_experts":2,"norm_topk_prob":false,"num_attention_heads":16,
  "num_experts_per_tok":6,"num_hidden_layers":27,"num_key_value_heads":16,"q_lora_rank":null,
  "qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,"rope_scaling":{"beta_fast":32,
  "beta_slow":1,"factor":40,"mscale":0.707,"mscale_all_dim":0.707,
  "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
  "routed_scaling_factor":1.0,"scoring_func":"softmax","seq_aux":true,"tie_word_embeddings":false,
  "topk_group":1,"topk_method":"greedy","torch_dtype":"bfloat16","v_head_dim":128,
  "vocab_size":102400})";

const std::string kV2 = R"({"architectures":["DeepseekV2ForCausalLM"],"first_k_dense_replace":1,
  "hidden_act":"silu","hidden_size":5120,"intermediate_size":12288,"kv_lora_rank":512,
  "max_position_embeddings":163840,"moe_intermediate_size":1536,"moe_layer_freq":1,"n_group":8,
  "n_routed_experts":160,"n_shared_experts":2,"norm_topk_prob":false,"num_attention_heads":128,
  "num_experts_per_tok":6,"num_hidden_layers":60,"num_key_value_heads":128,"q_lora_rank":1536,
  "qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,"rope_scaling":{"beta_fast":32,
  "beta_slow":1,"factor":40,"mscale":0.707,"mscale_all_dim":0.707,
  "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
  "routed_scaling_factor":16.0,"scoring_func":"softmax","topk_group":3,
  "topk_method":"group_limited_greedy","torch_dtype":"bfloat16","v_head_dim":128,
  "vocab_size":102400})";

const std::string kV3 = R"({"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,
  "bos_token_id":0,"ep_size":1,"eos_token_id":1,"first_k_dense_replace":3,"hidden_act":"silu",
  "hidden_size":7168,"intermediate_size":18432,"kv_lora_rank":512,"max_position_embeddings":163840,
  "moe_intermediate_size":2048,"moe_layer_freq":1,"n_group":8,"n_routed_experts":256,
  "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,
  "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,"q_lora_rank":1536,
  "qk_nope_head_dim":128,"qk_rope_head_dim":64,"quantization_config":{"activation_scheme":"dynamic",
  "fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]},"rms_norm_eps":1e-06,
  "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":1.0,"mscale_all_dim":1.0,
  "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
  "routed_scaling_factor":2.5,"scoring_func":"sigmoid","tie_word_embeddings":false,"topk_group":4,
  "topk_method":"noaux_tc","torch_dtype":"bfloat16","v_head_dim":128,"vocab_size":129280})";

const std::string kGlm45Air = R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,
  "eos_token_id":[151329,151336,151338],"first_k_dense_replace":1,"head_dim":128,
  "hidden_act":"silu","hidden_size":4096,"intermediate_size":10944,
  "max_position_embeddings":131072,"moe_intermediate_size":1408,"n_group":1,"n_routed_experts":128,
  "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":96,"num_experts_per_tok":8,
  "num_hidden_layers":46,"num_key_value_heads":8,"num_nextn_predict_layers":1,"pad_token_id":151329,
  "partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,
  "routed_scaling_factor":1.0,"tie_word_embeddings":false,"topk_group":1,"torch_dtype":"bfloat16",
  "use_qk_norm":false,"vocab_size":151552})";

TEST(HfFamilies, Llama31) {
  const ModelConfig m = parsed(kLlama31);
  EXPECT_EQ(m.architecture, "LlamaForCausalLM");
  EXPECT_EQ(m.vocab_size, 128256);
  EXPECT_EQ(m.num_layers, 32);
  EXPECT_EQ(m.num_heads, 32);
  EXPECT_EQ(m.num_kv_heads, 8);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.intermediate_size, 14336);
  EXPECT_EQ(m.rms_norm_eps, 1e-5);
  EXPECT_FALSE(m.qkv_bias || m.output_bias || m.mlp_bias || m.qk_norm);
  EXPECT_EQ(m.rope.scaling, Scaling::llama3);
  EXPECT_EQ(m.rope.style, Style::half);
  EXPECT_EQ(m.rope.theta, 5e5);
  EXPECT_EQ(m.rope.rotary_dim, 128);
  EXPECT_EQ(m.rope.factor, 8);
  EXPECT_EQ(m.rope.original_context, 8192);
  EXPECT_NEAR(m.softmax_scale, kScale128, 1e-15);
  EXPECT_EQ(m.mla.kv_rank, 0);
  EXPECT_EQ(m.moe.num_experts, 0);
  EXPECT_EQ(m.quant.layout, QuantConfig::Layout::none);
  EXPECT_THAT(m.layer_is_moe, AllOf(SizeIs(32), Each(false)));
  EXPECT_THAT(m.eos_ids, ElementsAre(TokenId{128001}, TokenId{128008}, TokenId{128009}));
}

TEST(HfFamilies, BiasesOfLlamaStandOnAllFourAndOnTheMlp) {
  const ModelConfig attention =
      parsed(with(kLlama31, R"("attention_bias":false)", R"("attention_bias":true)"));
  EXPECT_TRUE(attention.qkv_bias && attention.output_bias && !attention.mlp_bias);
  const ModelConfig mlp = parsed(with(kLlama31, R"("mlp_bias":false)", R"("mlp_bias":true)"));
  EXPECT_TRUE(mlp.mlp_bias && !mlp.qkv_bias && !mlp.output_bias);
}

TEST(HfFamilies, MistralIsLlamaWithoutAWindow) {
  const std::string json = R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,
    "eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
    "max_position_embeddings":32768,"num_attention_heads":32,"num_hidden_layers":32,
    "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,"sliding_window":null,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32768})";
  const ModelConfig m = parsed(json);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.num_kv_heads, 8);
  EXPECT_FALSE(m.qkv_bias || m.output_bias || m.mlp_bias || m.qk_norm);
  EXPECT_NEAR(m.softmax_scale, kScale128, 1e-15);
  parsed(with(json, "\"sliding_window\":null", "\"sliding_window\":32768"));
  for (const char* window : {"\"sliding_window\":4096", "\"other\":null"}) {
    const Error e = refused(with(json, "\"sliding_window\":null", window));
    EXPECT_EQ(e.code, ErrorCode::unsupported_model);
    EXPECT_THAT(e.message, AllOf(HasSubstr("sliding_window"), HasSubstr("4096")));
  }
}

TEST(HfFamilies, Qwen25HasBiasesOnQKV) {
  const ModelConfig m = parsed(kQwen25);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.num_kv_heads, 4);
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.output_bias || m.mlp_bias || m.qk_norm);
  EXPECT_EQ(m.rope.theta, 1e6);
  EXPECT_NEAR(m.softmax_scale, kScale128, 1e-15);
  // The reference ignores this key and always has the biases.
  EXPECT_TRUE(parsed(with(kQwen25, "{", R"({"attention_bias":false,)")).qkv_bias);
  EXPECT_THAT(refused(with(kQwen25, "window\":false", "window\":true")).message,
              HasSubstr("use_sliding_window"));
}

TEST(HfFamilies, Qwen3Moe235B) {
  const ModelConfig m = parsed(kQwen3);
  EXPECT_EQ(m.num_layers, 94);
  EXPECT_EQ(m.num_heads, 64);
  EXPECT_EQ(m.num_kv_heads, 4);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_TRUE(m.qk_norm);
  EXPECT_FALSE(m.qkv_bias || m.output_bias || m.mlp_bias);
  EXPECT_EQ(m.moe.num_experts, 128);
  EXPECT_EQ(m.moe.top_k, 8);
  EXPECT_EQ(m.moe.intermediate_size, 1536);
  EXPECT_EQ(m.moe.shared_intermediate_size, 0);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::softmax);
  EXPECT_FALSE(m.moe.correction_bias);
  EXPECT_EQ(m.moe.num_groups, 1);
  EXPECT_TRUE(m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.scaling_factor, 1);
  EXPECT_EQ(moe_layers(m), 94);
  const ModelConfig biased =
      parsed(with(kQwen3, R"("attention_bias":false)", R"("attention_bias":true)"));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
  EXPECT_EQ(moe_layers(parsed(with(kQwen3, R"("num_experts":128)", R"("num_experts":0)"))), 0);
}

TEST(HfFamilies, DeepseekV2LiteHasNoQueryRankAndPicksGreedily) {
  const ModelConfig m = parsed(kV2Lite);
  EXPECT_EQ(m.mla.q_rank, 0);
  EXPECT_EQ(m.mla.kv_rank, 512);
  EXPECT_EQ(m.mla.nope_dim, 128);
  EXPECT_EQ(m.mla.rope_dim, 64);
  EXPECT_EQ(m.mla.value_dim, 128);
  EXPECT_EQ(m.mla.norm_eps, 1e-6);
  EXPECT_EQ(m.head_dim, 192);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  EXPECT_EQ(m.rope.style, Style::interleaved);
  EXPECT_EQ(m.rope.scaling, Scaling::yarn);
  EXPECT_EQ(m.rope.mscale_all_dim, 0.707);
  EXPECT_NEAR(m.softmax_scale, 0.1147214, 1e-7);
  EXPECT_EQ(m.intermediate_size, 10944);
  EXPECT_EQ(m.moe.num_experts, 64);
  EXPECT_EQ(m.moe.top_k, 6);
  EXPECT_EQ(m.moe.shared_intermediate_size, 2816);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::softmax);
  EXPECT_FALSE(m.moe.correction_bias || m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.num_groups, 1);
  EXPECT_EQ(m.moe.top_groups, 1);
  EXPECT_EQ(m.moe.scaling_factor, 1);
  EXPECT_FALSE(m.layer_is_moe[0]);
  EXPECT_EQ(moe_layers(m), 26);
  EXPECT_EQ(m.num_mtp_layers, 0);
  // A greedy choice ignores groups.
  EXPECT_EQ(parsed(with(kV2Lite, R"("n_group":1)", R"("n_group":8)")).moe.num_groups, 1);
  EXPECT_EQ(parsed(with(kV2Lite, R"("moe_layer_freq":1)", R"("moe_layer_freq":2)")).layer_is_moe,
            [] {
              std::vector<bool> even(27);
              for (int layer = 2; layer < 27; layer += 2) even[layer] = true;
              return even;
            }());
}

TEST(HfFamilies, DeepseekV2PicksWithinGroups) {
  const ModelConfig m = parsed(kV2);
  EXPECT_EQ(m.mla.q_rank, 1536);
  EXPECT_EQ(m.moe.num_experts, 160);
  EXPECT_EQ(m.moe.num_groups, 8);
  EXPECT_EQ(m.moe.top_groups, 3);
  EXPECT_EQ(m.moe.group_score, MoeConfig::GroupScore::best);
  EXPECT_EQ(m.moe.scaling_factor, 16);
  EXPECT_EQ(m.moe.shared_intermediate_size, 3072);
}

TEST(HfFamilies, DeepseekV3) {
  const ModelConfig m = parsed(kV3);
  EXPECT_EQ(m.num_layers, 61);
  EXPECT_EQ(m.num_heads, 128);
  EXPECT_EQ(m.num_kv_heads, 128);
  EXPECT_EQ(m.head_dim, 192);
  EXPECT_EQ(m.mla.q_rank, 1536);
  EXPECT_EQ(m.mla.kv_rank, 512);
  EXPECT_NEAR(m.softmax_scale, 0.1352338, 1e-7);
  EXPECT_EQ(m.rope.factor, 40);
  EXPECT_EQ(m.moe.num_experts, 256);
  EXPECT_EQ(m.moe.top_k, 8);
  EXPECT_EQ(m.moe.intermediate_size, 2048);
  EXPECT_EQ(m.moe.shared_intermediate_size, 2048);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::sigmoid);
  EXPECT_TRUE(m.moe.correction_bias && m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.num_groups, 8);
  EXPECT_EQ(m.moe.top_groups, 4);
  EXPECT_EQ(m.moe.group_score, MoeConfig::GroupScore::two_best);
  EXPECT_EQ(m.moe.scaling_factor, 2.5);
  EXPECT_EQ(moe_layers(m), 58);
  EXPECT_FALSE(m.layer_is_moe[2]);
  EXPECT_TRUE(m.layer_is_moe[3]);
  EXPECT_EQ(m.num_mtp_layers, 1);
  EXPECT_EQ(m.quant.layout, QuantConfig::Layout::fp8_block);
  EXPECT_EQ(m.quant.group, 128);
  EXPECT_THAT(m.quant.skipped, SizeIs(0));
}

TEST(HfFamilies, TheSoftmaxScaleFollowsYarnAlone) {
  const double plain = 1 / std::sqrt(192.0);
  EXPECT_NEAR(parsed(with(kV3, R"("mscale_all_dim":1.0)", R"("mscale_all_dim":0)")).softmax_scale,
              plain, 1e-15);
  EXPECT_NEAR(parsed(with(kV3, R"("factor":40)", R"("factor":1)")).softmax_scale, plain, 1e-15);
  EXPECT_NEAR(parsed(with(kV3, R"("type":"yarn")", R"("type":"linear")")).softmax_scale, plain,
              1e-15);
  EXPECT_EQ(parsed(with(kV3, "{", R"({"rope_interleave":false,)")).rope.style, Style::half);
}

TEST(HfFamilies, Glm45Air) {
  const ModelConfig m = parsed(kGlm45Air);
  EXPECT_EQ(m.num_heads, 96);
  EXPECT_EQ(m.num_kv_heads, 8);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  EXPECT_EQ(m.rope.style, Style::half);
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.output_bias || m.mlp_bias || m.qk_norm);
  EXPECT_EQ(m.moe.num_experts, 128);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::sigmoid);
  EXPECT_TRUE(m.moe.correction_bias && m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.num_groups, 1);
  EXPECT_EQ(m.moe.shared_intermediate_size, 1408);
  EXPECT_EQ(m.moe.scaling_factor, 1);
  EXPECT_EQ(moe_layers(m), 45);
  EXPECT_EQ(m.num_mtp_layers, 1);
  EXPECT_EQ(m.mla.kv_rank, 0);
  EXPECT_NEAR(m.softmax_scale, kScale128, 1e-15);
  // The larger model norms its heads; without partial_rotary_factor, half of a head's dims is
  // rotated.
  EXPECT_TRUE(parsed(with(kGlm45Air, R"("use_qk_norm":false)", R"("use_qk_norm":true)")).qk_norm);
  EXPECT_EQ(parsed(with(kGlm45Air, R"("partial_rotary_factor":0.5)", R"("x":0.5)")).rope.rotary_dim,
            64);
}

TEST(HfFamilies, WhatAFamilyDoesNotHaveIsRefusedByName) {
  struct Case {
    const std::string& json;
    std::string from, to, named;
  };
  const std::vector<Case> cases = {
      {kLlama31, "{", R"({"use_qk_norm":true,)", "use_qk_norm"},
      {kLlama31, "{", R"({"num_local_experts":8,)", "num_local_experts"},
      {kLlama31, "{", R"({"partial_rotary_factor":0.5,"v_head_dim":64,)", "v_head_dim"},
      {kQwen25, "{", R"({"mlp_bias":true,)", "mlp_bias"},
      {kQwen3, "{", R"({"n_shared_experts":1,)", "n_shared_experts"},
      {kQwen3, "{", R"({"rope_interleave":true,)", "rope_interleave"},
      {kQwen3, "{", R"({"swiglu_alpha":1.702,)", "swiglu_alpha"},
      {kQwen3, "{", R"({"zero_centered":true,)", "zero_centered"},
      {kV3, "{", R"({"attn_res_block_size":12,)", "attn_res_block_size"},
      {kV3, "{", R"({"mla_use_output_gate":true,)", "mla_use_output_gate"},
      {kQwen3, "{", R"({"use_qk_norm":false,)", "use_qk_norm"},
      {kQwen3, R"("num_experts_per_tok":8)", R"("num_experts_per_tok":65)", "per_tok is 65"},
      {kV2, R"("topk_method":"group_limited_greedy")", R"("topk_method":"noaux_tc")", "noaux_tc"},
      {kV2, R"("scoring_func":"softmax")", R"("scoring_func":"sigmoid")", "scoring_func"},
      {kV2, R"("norm_topk_prob":false)", R"("norm_topk_prob":true)", "norm_topk_prob"},
      {kV3, R"("attention_bias":false)", R"("attention_bias":true)", "attention_bias"},
      {kV3, R"("topk_method":"noaux_tc")", R"("topk_method":"greedy")", "topk_method"},
      {kV3, R"("scoring_func":"sigmoid")", R"("scoring_func":"softmax")", "scoring_func"},
      {kV3, "{", R"({"index_topk":2048,)", "index_topk"},
      {kV3, "{", R"({"partial_rotary_factor":0.5,)", "partial_rotary_factor"},
      {kV3, R"("n_routed_experts":256)", R"("n_routed_experts":0)", "n_shared_experts"},
      {kGlm45Air, "{", R"({"kv_lora_rank":512,)", "kv_lora_rank"},
      {kGlm45Air, "{", R"({"scoring_func":"softmax",)", "scoring_func"},
  };
  for (const Case& c : cases) {
    const Error e = refused(with(c.json, c.from, c.to));
    EXPECT_EQ(e.code, ErrorCode::unsupported_model) << c.to;
    EXPECT_THAT(e.message, HasSubstr(c.named)) << c.to;
    EXPECT_THAT(e.fix, HasSubstr("a supported value")) << c.to;
  }
  const std::string most =
      with(kQwen3, R"("num_experts_per_tok":8)", R"("num_experts_per_tok":64)");
  EXPECT_EQ(parsed(most).moe.top_k, 64);
}

TEST(HfFamilies, ImpossibleSizesAreRefusedByKey) {
  const std::vector<std::vector<std::string>> cases = {
      {R"("kv_lora_rank":512)", R"("kv_lora_rank":0)", "kv_lora_rank"},
      {R"("kv_lora_rank":512)", R"("kv_lora_rank":1000000)", "kv_lora_rank"},
      {R"("q_lora_rank":1536)", R"("q_lora_rank":-1)", "q_lora_rank"},
      {R"("qk_nope_head_dim":128)", R"("qk_nope_head_dim":0)", "qk_nope_head_dim"},
      {R"("qk_rope_head_dim":64)", R"("qk_rope_head_dim":63)", "qk_rope_head_dim"},
      {R"("qk_rope_head_dim":64)", R"("x":64)", "qk_rope_head_dim"},
      {R"("v_head_dim":128)", R"("v_head_dim":4096)", "v_head_dim"},
      {R"("n_group":8)", R"("n_group":7)", "n_group"},
      {R"("n_group":8)", R"("n_group":0)", "n_group"},
      {R"("n_group":8)", R"("n_group":256)", "n_group"},
      {R"("topk_group":4)", R"("topk_group":9)", "topk_group"},
      {R"("n_group":8)", R"("x":8)", "n_group"},
      {R"("n_shared_experts":1)", R"("n_shared_experts":1024)", "n_shared_experts"},
      {R"("first_k_dense_replace":3)", R"("first_k_dense_replace":-1)", "first_k_dense_replace"},
      {R"("moe_layer_freq":1)", R"("moe_layer_freq":[0,1])", "moe_layer_freq"},
      {R"("moe_layer_freq":1)", R"("moe_layer_freq":0)", "moe_layer_freq"},
      {R"("routed_scaling_factor":2.5)", R"("routed_scaling_factor":0)", "routed_scaling_factor"},
      {R"("num_experts_per_tok":8)", R"("num_experts_per_tok":257)", "num_experts_per_tok"},
      {R"("num_nextn_predict_layers":1)", R"("num_nextn_predict_layers":-1)", "num_nextn"},
      {R"("norm_topk_prob":true)", R"("norm_topk_prob":null)", "norm_topk_prob"},
  };
  for (const auto& c : cases) {
    const Error e = refused(with(kV3, c[0], c[1]));
    EXPECT_EQ(e.code, ErrorCode::bad_config) << c[1];
    EXPECT_THAT(e.message, HasSubstr(c[2])) << c[1];
  }
}

TEST(HfFamilies, EveryRowOfTheTableIsSupported) {
  const auto names = supported_architectures();
  ASSERT_EQ(names.size(), hf_families().size());
  for (const std::string_view name :
       {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
        "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM"})
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
}

}  // namespace
}  // namespace hocket
