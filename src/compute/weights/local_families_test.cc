// The families in which some layers see near keys only, as published: the important fields of
// config.json, and their meaning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compute/weights/config_testing.h"
#include "compute/weights/hf_families.h"

namespace hocket {
namespace {

using testing::HasSubstr;

const std::string kMimoV2 = R"({"architectures":["MiMoV2FlashForCausalLM"],
  "add_full_attention_sink_bias":false,"add_swa_attention_sink_bias":true,"attention_bias":false,
  "attention_value_scale":0.707,"head_dim":192,"hidden_act":"silu","hidden_size":4096,
  "hybrid_layer_pattern":[0,1,1],"intermediate_size":16384,"layernorm_epsilon":1e-05,
  "max_position_embeddings":262144,"moe_intermediate_size":2048,"moe_layer_freq":[0,1,1],
  "n_group":1,"n_routed_experts":256,"n_shared_experts":null,"norm_topk_prob":true,
  "num_attention_heads":64,"num_experts_per_tok":8,"num_hidden_layers":3,"num_key_value_heads":4,
  "partial_rotary_factor":0.334,"rope_theta":5000000,"routed_scaling_factor":null,
  "scoring_func":"sigmoid","sliding_window":128,"swa_head_dim":192,"swa_num_attention_heads":64,
  "swa_num_key_value_heads":8,"swa_rope_theta":10000,"swa_v_head_dim":128,
  "tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc","v_head_dim":128,
  "vocab_size":152576})";

TEST(LocalFamilies, SlidingLayersOfMimoHaveHeadsOfTheirOwn) {
  const ModelConfig m = parsed(kMimoV2);
  EXPECT_EQ(m.num_mtp_layers, 3);
  EXPECT_TRUE(m.local_mtp);
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, true, true}));
  const AttentionConfig far = m.attention(0), local = m.attention(1);
  EXPECT_EQ(far.num_kv_heads, 4);
  EXPECT_EQ(far.visible.window, 0);
  EXPECT_FALSE(far.sinks);
  EXPECT_EQ(local.num_kv_heads, 8);
  EXPECT_EQ(local.visible.window, 128);
  EXPECT_TRUE(local.sinks);
  for (const AttentionConfig& heads : {far, local}) {
    EXPECT_EQ(heads.num_heads, 64);
    EXPECT_EQ(heads.key_dim, 192);
    EXPECT_EQ(heads.value_dim, 128);
  }
  EXPECT_EQ(m.value_scale, 0.707);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  EXPECT_EQ(m.rope_of(0).theta, 5e6);
  EXPECT_EQ(m.rope_of(1).theta, 1e4);
  EXPECT_EQ(m.local_rope.rotary_dim, 64);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::sigmoid);
  EXPECT_EQ(m.moe.scaling_factor, 1);
}

TEST(LocalFamilies, ModulesOfMimoAreDenseWhereNoLayerIs) {
  const std::string all =
      with(kMimoV2, R"("moe_layer_freq":[0,1,1])", R"("moe_layer_freq":[1,1,1])");
  const std::string width = R"("intermediate_size":16384,)";
  EXPECT_EQ(parsed(all).intermediate_size, 16384);
  EXPECT_THAT(refused(with(all, width, "")).message, HasSubstr("intermediate_size is missing"));
  const std::string none = with(all, width, R"("num_nextn_predict_layers":0,)");
  EXPECT_EQ(parsed(none).intermediate_size, 0);
}

TEST(LocalFamilies, AWindowSizeDoesNotCountTheQueriesOwnKey) {
  const std::string key = R"("sliding_window":128)";
  EXPECT_EQ(parsed(with(kMimoV2, key, R"("sliding_window_size":128)")).local.visible.window, 129);
  EXPECT_THAT(refused(with(kMimoV2, key, R"("sliding_window":0)")).message,
              HasSubstr("sliding_window"));
}

TEST(LocalFamilies, MimoIsRefusedWhereItsListsDoNotFit) {
  const std::string pattern = R"("hybrid_layer_pattern":[0,1,1])";
  const auto why = [&](const std::string& from, const std::string& to) {
    return refused(with(kMimoV2, from, to)).message;
  };
  EXPECT_THAT(why(pattern, R"("hybrid_layer_pattern":[0,1])"), HasSubstr("2 entries for 3 layers"));
  EXPECT_THAT(why(pattern, R"("hybrid_layer_pattern":[0,1,2])"), HasSubstr("integers from 0 to 1"));
  EXPECT_THAT(why(pattern, R"("x":1)"), HasSubstr("both missing"));
  EXPECT_THAT(why("{", R"({"layer_types":["full_attention","full_attention","full_attention"],)"),
              HasSubstr("contradict each other"));
  EXPECT_THAT(why("{", R"({"layer_types":["full_attention","x","full_attention"],)"),
              HasSubstr("layer_types holds \"x\""));
  EXPECT_THAT(why(R"("swa_num_key_value_heads":8)", R"("swa_num_key_value_heads":7)"),
              HasSubstr("swa_num_key_value_heads 7 does not divide"));
  EXPECT_THAT(why(R"("swa_head_dim":192)", R"("swa_head_dim":128)"),
              HasSubstr("swa_head_dim 128 differs from head_dim 192"));
  EXPECT_THAT(why("{", R"({"attention_projection_layout":"fused_qkv",)"), HasSubstr("fused_qkv"));
  EXPECT_THAT(why(R"("moe_layer_freq":[0,1,1])", R"("moe_layer_freq":[0])"),
              HasSubstr("moe_layer_freq has 1 entries"));
}

const std::string kGptOss = R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,
  "head_dim":64,"hidden_act":"silu","hidden_size":2880,"intermediate_size":2880,
  "layer_types":["sliding_attention","full_attention"],"max_position_embeddings":131072,
  "num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":2,"num_key_value_heads":8,
  "num_local_experts":32,"rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,
  "factor":32.0,"original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false},
  "rope_theta":150000,"sliding_window":128,"swiglu_limit":7.0,"tie_word_embeddings":false,
  "vocab_size":201088})";

TEST(LocalFamilies, GptOssHasSinksEverywhereAndLimitsItsGates) {
  const ModelConfig m = parsed(kGptOss);
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{true, false}));
  EXPECT_TRUE(m.attention(0).sinks && m.attention(1).sinks);
  EXPECT_EQ(m.attention(0).visible.window, 128);
  EXPECT_EQ(m.attention(1).visible.window, 0);
  EXPECT_TRUE(m.qkv_bias && m.output_bias && m.mlp_bias && m.moe.gate_bias);
  EXPECT_EQ(m.local_rope.factor, 32);
  EXPECT_EQ(m.moe.num_experts, 32);
  EXPECT_EQ(m.moe.intermediate_size, 2880);
  EXPECT_TRUE(m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.stacked, MoeConfig::Stacked::inputs_first);
  EXPECT_TRUE(m.moe.interleaved);
  EXPECT_EQ(m.moe.activation_in(1).kind, Activation::Kind::limited_gate);
  EXPECT_EQ(m.moe.activation_in(1).limit, 7);
  EXPECT_EQ(moe_layers(m), 2);
  EXPECT_THAT(refused(with(kGptOss, R"("swiglu_limit":7.0)", R"("swiglu_limit":0)")).message,
              HasSubstr("swiglu_limit"));
  const std::string three =
      with(with(kGptOss, R"("num_hidden_layers":2)", R"("num_hidden_layers":3)"),
           R"("layer_types":["sliding_attention","full_attention"],)", "");
  EXPECT_EQ(parsed(three).layer_is_local, (std::vector<bool>{true, false, true}));
  parsed(with(kGptOss, "{", R"({"swiglu_alpha":1.702,)"));
  EXPECT_THAT(refused(with(kGptOss, "{", R"({"swiglu_alpha":1.5,)")).message,
              HasSubstr("swiglu_alpha is 1.5; supported is 1.702"));
}

const std::string kLlama4 = R"({"architectures":["Llama4ForCausalLM"],"attention_bias":false,
  "attention_chunk_size":8192,"attn_scale":0.1,"attn_temperature_tuning":true,"floor_scale":8192,
  "head_dim":128,"hidden_act":"silu","hidden_size":5120,"interleave_moe_layer_step":2,
  "intermediate_size":8192,"intermediate_size_mlp":16384,"max_position_embeddings":1048576,
  "no_rope_layers":[1,1,1,0],"num_attention_heads":40,"num_experts_per_tok":1,
  "num_hidden_layers":4,"num_key_value_heads":8,"num_local_experts":128,"rms_norm_eps":1e-05,
  "rope_scaling":null,"rope_theta":500000.0,"tie_word_embeddings":false,"use_qk_norm":true,
  "vocab_size":202048})";

TEST(LocalFamilies, Llama4SeesChunksWhereItRotates) {
  const ModelConfig m = parsed(kLlama4);
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(m.attention(0).visible.chunk, 8192);
  EXPECT_TRUE(m.attention(0).unit_norms);
  EXPECT_EQ(m.rope_of(0).rotary_dim, 128);
  EXPECT_EQ(m.rope_of(0).style, RopeConfig::Style::interleaved);
  EXPECT_EQ(m.rope_of(0).query_beta, 0);
  EXPECT_EQ(m.attention(3).visible.chunk, 0);
  EXPECT_FALSE(m.attention(3).unit_norms);
  EXPECT_EQ(m.rope_of(3).rotary_dim, 0);
  EXPECT_EQ(m.rope_of(3).query_beta, 0.1);
  EXPECT_EQ(m.rope_of(3).original_context, 8192);
  EXPECT_EQ(m.rope_of(3).query_shift, 1);
  EXPECT_EQ(m.intermediate_size, 16384);
  EXPECT_EQ(m.moe.intermediate_size, 8192);
  EXPECT_EQ(m.moe.shared_intermediate_size, 8192);
  EXPECT_TRUE(m.moe.weighted_inputs);
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(parsed(with(kLlama4, "{", R"({"moe_layers":[2],)")).layer_is_moe,
            (std::vector<bool>{false, false, true, false}));
}

TEST(LocalFamilies, Llama4IsRefusedWhereItsKeysDoNotFit) {
  const auto why = [&](const std::string& from, const std::string& to) {
    return refused(with(kLlama4, from, to)).message;
  };
  EXPECT_THAT(why(R"("num_experts_per_tok":1)", R"("num_experts_per_tok":2)"),
              HasSubstr("num_experts_per_tok is 2"));
  EXPECT_THAT(why(R"("no_rope_layers":[1,1,1,0])", R"("no_rope_layers":[1,1])"),
              HasSubstr("2 entries for 4 layers"));
  EXPECT_THAT(why("{", R"({"layer_types":["chunked_attention","chunked_attention",
                          "full_attention","full_attention"],)"),
              HasSubstr("layer_types and no_rope_layers disagree"));
  const ModelConfig m =
      parsed(with(kLlama4, R"("no_rope_layers":[1,1,1,0])", R"("no_rope_layers":[])"));
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{true, true, true, false}));
}

const std::string kStep37 = R"({"architectures":["Step3p7ForConditionalGeneration"],
  "eos_token_id":1,"vision_config":{"width":16},"text_config":{
  "attention_other_setting":{"attention_type":"sliding_attention","head_dim":128,
  "num_attention_groups":8,"num_attention_heads":96},"head_dim":128,"hidden_size":4096,
  "intermediate_size":11264,"layer_types":["full_attention","sliding_attention",
  "sliding_attention","full_attention","sliding_attention"],"max_position_embeddings":262144,
  "moe_intermediate_size":1280,"moe_layers_enum":"2,3","moe_num_experts":288,
  "moe_router_activation":"sigmoid","moe_router_scaling_factor":3.0,"moe_top_k":8,
  "norm_expert_weight":true,"num_attention_groups":8,"num_attention_heads":64,
  "num_hidden_layers":4,"partial_rotary_factors":[0.5,1.0,1.0,0.5,1.0],"rms_norm_eps":1e-05,
  "rope_scaling":{"factor":2.0,"high_freq_factor":32.0,"low_freq_factor":1.0,
  "original_max_position_embeddings":131072,"rope_type":"llama3"},
  "rope_theta":[5000000.0,10000.0,10000.0,5000000.0,10000.0],"share_expert_dim":1280,
  "sliding_window":512,"swiglu_limits":[0.0,0.0,0.0,7.0,0.0],
  "swiglu_limits_shared":[0.0,0.0,16.0,16.0,0.0],"use_head_wise_attn_gate":true,
  "use_moe_router_bias":true,"vocab_size":128815}})";

TEST(LocalFamilies, StepHasListsForItsLayers) {
  const ModelConfig m = parsed(kStep37);
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(m.attention(0).num_heads, 64);
  EXPECT_EQ(m.attention(1).num_heads, 96);
  EXPECT_EQ(m.attention(1).visible.window, 512);
  EXPECT_EQ(m.rope_of(0).theta, 5e6);
  EXPECT_EQ(m.rope_of(0).rotary_dim, 64);
  EXPECT_EQ(m.rope_of(0).scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(m.rope_of(1).theta, 1e4);
  EXPECT_EQ(m.rope_of(1).rotary_dim, 128);
  EXPECT_EQ(m.rope_of(1).scaling, RopeConfig::Scaling::none);
  EXPECT_TRUE(m.head_gates && m.qk_norm && m.centred_norms);
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(m.moe.output_scale, 3);
  EXPECT_EQ(m.moe.shared_intermediate_size, 1280);
  EXPECT_EQ(m.moe.activation_in(2).kind, Activation::Kind::silu);
  EXPECT_EQ(m.moe.activation_in(3).kind, Activation::Kind::limited_silu);
  EXPECT_EQ(m.moe.activation_in(3).limit, 7);
  EXPECT_EQ(m.moe.shared_activation_in(2).limit, 16);
  // Null is no limit.
  const ModelConfig null =
      parsed(with(kStep37, R"([0.0,0.0,0.0,7.0,0.0])", "[null,null,7,0,null]"));
  EXPECT_EQ(null.moe.activation_in(2).limit, 7);
  EXPECT_EQ(null.moe.activation_in(3).kind, Activation::Kind::silu);
}

TEST(LocalFamilies, StepIsRefusedIfItsAnglesGoToOtherLayers) {
  const auto with_keys = [](const std::string& keys) {
    return with(kStep37, R"("vocab_size")", keys + R"("vocab_size")");
  };
  parsed(with_keys(R"("use_rope_layers":[],"yarn_only_types":["full_attention"],)"));
  EXPECT_THAT(refused(with_keys(R"("use_rope_layers":[1,1,1,0],)")).message,
              HasSubstr("use_rope_layers is [1,1,1,0]"));
  EXPECT_THAT(refused(with_keys(R"("yarn_only_types":["sliding_attention"],)")).message,
              HasSubstr("yarn_only_types is [\"sliding_attention\"]"));
}

TEST(LocalFamilies, TheNormsOfStepAreCentred) {
  parsed(with(kStep37, R"("vocab_size")", R"("zero_centered":true,"vocab_size")"));
  EXPECT_THAT(
      refused(with(kStep37, R"("vocab_size")", R"("zero_centered":false,"vocab_size")")).message,
      HasSubstr("zero_centered is false"));
}

TEST(LocalFamilies, StepMayNameTheAnglesOfEachKindInstead) {
  std::string json = with(kStep37, R"("rope_theta":[5000000.0,10000.0,10000.0,5000000.0,10000.0],)",
                          R"("rope_parameters":{"full_attention":{"rope_theta":4e6},
                          "sliding_attention":{"rope_theta":3e4,"partial_rotary_factor":0.25}},)");
  const ModelConfig m =
      parsed(with(json, R"("partial_rotary_factors":[0.5,1.0,1.0,0.5,1.0],)", ""));
  EXPECT_EQ(m.rope_of(0).theta, 4e6);
  EXPECT_EQ(m.rope_of(0).rotary_dim, 128);
  EXPECT_EQ(m.rope_of(1).theta, 3e4);
  EXPECT_EQ(m.rope_of(1).rotary_dim, 32);
  // One theta is that of all layers.
  const ModelConfig one =
      parsed(with(kStep37, "[5000000.0,10000.0,10000.0,5000000.0,10000.0]", "70000"));
  EXPECT_EQ(one.rope_of(0).theta, 7e4);
  EXPECT_EQ(one.rope_of(1).theta, 7e4);
}

TEST(LocalFamilies, MissingKeysHaveTheLibrarysValues) {
  std::string step = kStep37;
  for (const char* key : {R"("use_head_wise_attn_gate":true,)", R"("use_moe_router_bias":true,)",
                          R"("moe_layers_enum":"2,3",)", R"("rms_norm_eps":1e-05,)"})
    step = with(step, key, "");
  ModelConfig m = parsed(step);
  EXPECT_TRUE(m.head_gates && m.moe.correction_bias);
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(m.rms_norm_eps, 1e-5);
  m = parsed(with(kLlama4, R"("no_rope_layers":[1,1,1,0])", R"("no_rope_layer_interval":2)"));
  EXPECT_EQ(m.layer_is_local, (std::vector<bool>{true, false, true, false}));
  m = parsed(with(kGptOss, R"("rope_theta":150000,)", ""));
  EXPECT_EQ(m.rope.theta, 150000);
  m = parsed(with(with(kGptOss, R"("rope_scaling")", R"("x")"), R"("rope_theta":150000,)", ""));
  EXPECT_EQ(m.rope.scaling, RopeConfig::Scaling::yarn);
  EXPECT_EQ(m.local_rope.factor, 32);
  std::string mimo = kMimoV2;
  for (const char* key :
       {R"("rope_theta":5000000,)", R"("partial_rotary_factor":0.334,)",
        R"("attention_value_scale":0.707,)", R"("add_swa_attention_sink_bias":true,)",
        R"("sliding_window":128,)", R"("swa_rope_theta":10000,)"})
    mimo = with(mimo, key, "");
  m = parsed(mimo);
  EXPECT_EQ(m.rope_of(0).theta, 5e6);
  EXPECT_EQ(m.rope_of(1).theta, 1e4);
  EXPECT_EQ(m.rope_of(0).rotary_dim, 64);
  EXPECT_EQ(m.rope_of(1).rotary_dim, 64);
  EXPECT_EQ(m.value_scale, 0.707);
  EXPECT_EQ(m.local.visible.window, 128);
  EXPECT_TRUE(m.local.sinks && !m.sinks);
  EXPECT_EQ(
      parsed(with(kMimoV2, R"("attention_value_scale":0.707)", R"("attention_value_scale":null)"))
          .value_scale,
      1);
}

TEST(LocalFamilies, StepIsRefusedWhereItsListsDoNotFit) {
  const auto why = [&](const std::string& from, const std::string& to) {
    return refused(with(kStep37, from, to)).message;
  };
  EXPECT_THAT(why(R"("moe_layers_enum":"2,3")", R"("moe_layers_enum":"2,x")"),
              HasSubstr("moe_layers_enum holds \"x\""));
  EXPECT_THAT(why(R"("rope_theta":[5000000.0,10000.0,)", R"("rope_theta":[5000000.0,20000.0,)"),
              HasSubstr("rope_theta differs among layers of one kind"));
  EXPECT_THAT(why(R"("partial_rotary_factors":[0.5,1.0,1.0,0.5,1.0])",
                  R"("partial_rotary_factors":[0.5,1.0])"),
              HasSubstr("partial_rotary_factors has 2 entries"));
  EXPECT_THAT(why(R"("swiglu_limits":[0.0,0.0,0.0,7.0,0.0])", R"("swiglu_limits":[-1,0,0,0])"),
              HasSubstr("swiglu_limits"));
  EXPECT_THAT(why(R"("swiglu_limits":[0.0,0.0,0.0,7.0,0.0])", R"("swiglu_limits":-1)"),
              HasSubstr("swiglu_limits is -1"));
  EXPECT_THAT(why(R"("num_attention_heads":64)", R"("num_attention_heads":63)"),
              HasSubstr("num_attention_groups 8 does not divide"));
}

}  // namespace
}  // namespace hocket
