// Kimi Linear's config.json: the important fields as published, with fewer layers.
#include "compute/weights/hf_hybrid.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compute/weights/config_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

const std::string kKimiLinear = R"({"architectures":["KimiLinearForCausalLM"],
  "bos_token_id":163584,"eos_token_id":163586,"first_k_dense_replace":1,"head_dim":72,
  "hidden_act":"silu","hidden_size":2304,"intermediate_size":9216,"kv_lora_rank":512,
  "linear_attn_config":{"full_attn_layers":[4],"head_dim":128,"kda_layers":[1,2,3,5],
  "num_heads":32,"short_conv_kernel_size":4},"mla_use_nope":true,"model_max_length":1048576,
  "moe_intermediate_size":1024,"moe_layer_freq":1,"moe_renormalize":true,
  "moe_router_activation_func":"sigmoid","num_attention_heads":32,"num_expert_group":1,
  "num_experts":256,"num_experts_per_token":8,"num_hidden_layers":5,"num_key_value_heads":32,
  "num_nextn_predict_layers":0,"num_shared_experts":1,"q_lora_rank":null,"qk_nope_head_dim":128,
  "qk_rope_head_dim":64,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,
  "routed_scaling_factor":2.446,"tie_word_embeddings":false,"topk_group":1,"use_grouped_topk":true,
  "v_head_dim":128,"vocab_size":163840})";

TEST(KimiLinear, HasDeltaNetsBesideAttentionWithoutRotation) {
  const ModelConfig m = parsed(kKimiLinear);
  EXPECT_EQ(m.layer_is_linear, (std::vector<bool>{true, true, true, false, true}));
  EXPECT_TRUE(m.delta_net.channel_decay);
  EXPECT_EQ(m.delta_net.num_key_heads, 32);
  EXPECT_EQ(m.delta_net.num_value_heads, 32);
  EXPECT_EQ(m.delta_net.key_dim, 128);
  EXPECT_EQ(m.delta_net.value_dim, 128);
  EXPECT_EQ(m.delta_net.channels(), 3 * 4096);
  EXPECT_EQ(m.delta_net.gate_columns(), 4096 + 32);
  EXPECT_EQ(m.rope.rotary_dim, 0);
  EXPECT_EQ(m.mla.kv_rank, 512);
  EXPECT_EQ(m.mla.rope_dim, 64);
  EXPECT_EQ(m.softmax_scale, 1 / std::sqrt(192.0));
  EXPECT_EQ(m.max_position_embeddings, 1048576);
  EXPECT_EQ(m.rms_norm_eps, 1e-5);
}

TEST(KimiLinear, RoutesAsDeepseekV3) {
  const ModelConfig m = parsed(kKimiLinear);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::sigmoid);
  EXPECT_TRUE(m.moe.correction_bias && m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.num_experts, 256);
  EXPECT_EQ(m.moe.top_k, 8);
  EXPECT_EQ(m.moe.scaling_factor, 2.446);
  EXPECT_EQ(m.moe.shared_intermediate_size, 1024);
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, true, true, true, true}));
  EXPECT_EQ(parsed(with(kKimiLinear, R"("num_expert_group":1)", R"("num_expert_group":8)"))
                .moe.num_groups,
            8);
}

TEST(KimiLinear, IsRefusedWhereItWouldBeAnotherModel) {
  const auto why = [&](const std::string& from, const std::string& to) {
    return refused(with(kKimiLinear, from, to)).message;
  };
  EXPECT_THAT(why(R"("kda_layers":[1,2,3,5])", R"("kda_layers":[1,2,3])"),
              HasSubstr("names layer 5 0 times"));
  EXPECT_THAT(why(R"("kda_layers":[1,2,3,5])", R"("kda_layers":[1,2,3,4,5])"),
              HasSubstr("names layer 4 2 times"));
  EXPECT_THAT(why(R"("kda_layers":[1,2,3,5])", R"("kda_layers":[1,2,3,6])"),
              HasSubstr("kda_layers"));
  EXPECT_THAT(why(R"("full_attn_layers":[4])", R"("full_attn_layers":[])"),
              HasSubstr("names layer 4 0 times"));
  EXPECT_THAT(why(R"("kda_layers":[1,2,3,5])", R"("gate_lower_bound":-5,"kda_layers":[1,2,3,5])"),
              HasSubstr("linear_attn_config holds \"gate_lower_bound\""));
  EXPECT_THAT(why(R"("short_conv_kernel_size":4)", R"("short_conv_kernel_size":3)"),
              HasSubstr("short_conv_kernel_size is 3"));
  EXPECT_THAT(why(R"("mla_use_nope":true)", R"("mla_use_nope":false)"), HasSubstr("mla_use_nope"));
  EXPECT_THAT(why(R"("mla_use_nope":true)", R"("mla_use_nope":true,"mla_use_output_gate":true)"),
              HasSubstr("mla_use_output_gate is true"));
  EXPECT_THAT(
      why(R"("moe_router_activation_func":"sigmoid")", R"("moe_router_activation_func":"softmax")"),
      HasSubstr("moe_router_activation_func"));
  EXPECT_THAT(why(R"("linear_attn_config")", R"("other_config")"),
              HasSubstr("linear_attn_config is missing"));
  EXPECT_THAT(why(R"("rms_norm_eps":1e-05,)", ""), HasSubstr("rms_norm_eps is missing"));
  EXPECT_THAT(why("{", R"({"dense_ffn_hidden":512,)"), HasSubstr("dense_ffn_hidden is 512"));
  EXPECT_EQ(parsed(with(kKimiLinear, "{", R"({"dense_ffn_hidden":9216,)")).intermediate_size, 9216);
}

TEST(KimiLinear, RefusesListsOfLayersThatAreNoLists) {
  for (const std::string value :
       {R"("x")", "0", "-5", "6", "99999999", "true", "{}", "1.5", "[0]", "[6]", "[true]"}) {
    const auto why = [&](const char* key, const char* list) {
      return refused(with(kKimiLinear, fmt::format(R"("{}":{})", key, list),
                          fmt::format(R"("{}":{})", key, value)))
          .message;
    };
    EXPECT_THAT(why("kda_layers", "[1,2,3,5]"), HasSubstr("kda_layers is " + value));
    EXPECT_THAT(why("full_attn_layers", "[4]"), HasSubstr("full_attn_layers is " + value));
  }
  const std::string one = with(kKimiLinear, R"("full_attn_layers":[4])", R"("full_attn_layers":4)");
  EXPECT_EQ(parsed(one).layer_is_linear, parsed(kKimiLinear).layer_is_linear);
}

TEST(KimiLinear, LayerTypesMaySayTheSameAgain) {
  const auto typed = [](const std::string& fourth, const std::string& fifth) {
    return with(kKimiLinear, "{",
                R"({"layer_types":["linear_attention","linear_attention","linear_attention",)" +
                    fourth + fifth + "],");
  };
  const std::string full = R"("full_attention")", linear = R"("linear_attention")";
  EXPECT_EQ(parsed(typed(full + ",", linear)).layer_is_linear,
            (std::vector<bool>{true, true, true, false, true}));
  EXPECT_THAT(refused(typed(linear + ",", full)).message, HasSubstr("contradict each other"));
  EXPECT_THAT(refused(typed(full, "")).message, HasSubstr("4 entries for 5 layers"));
  EXPECT_THAT(refused(typed(full + ",", R"("x")")).message, HasSubstr("layer_types holds \"x\""));
  const std::string same = typed(full + ",", linear);
  EXPECT_THAT(refused(with(same, R"("linear_attn_config")", R"("other_config")")).message,
              HasSubstr("linear_attn_config is missing"));
}

// The library writes these keys into folders that it saves, and reads both forms.
TEST(KimiLinear, TheLibrarysKeysMayStandInsteadOfItsConfig) {
  const std::string lists = R"("linear_attn_config":{"full_attn_layers":[4],"head_dim":128,)"
                            R"("kda_layers":[1,2,3,5],
  "num_heads":32,"short_conv_kernel_size":4})";
  const std::string saved =
      with(with(kKimiLinear, lists,
                R"("linear_head_dim":64,"linear_num_heads":16,"linear_conv_kernel_dim":4)"),
           R"("first_k_dense_replace":1)",
           R"("mlp_layer_types":["dense","sparse","sparse","sparse","sparse"])");
  const ModelConfig m = parsed(saved);
  EXPECT_TRUE(m.delta_net.channel_decay);
  EXPECT_EQ(m.delta_net.num_key_heads, 16);
  EXPECT_EQ(m.delta_net.value_dim, 64);
  EXPECT_EQ(m.layer_is_linear, (std::vector<bool>{true, true, true, false, true}));
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, true, true, true, true}));
  const std::string linear = R"("linear_attention",)";
  const ModelConfig typed = parsed(with(
      saved, "{",
      R"({"layer_types":["full_attention",)" + linear + linear + linear + R"("full_attention"],)"));
  EXPECT_EQ(typed.layer_is_linear, (std::vector<bool>{false, true, true, true, false}));
  EXPECT_THAT(refused(with(saved, R"("linear_conv_kernel_dim":4)", R"("linear_conv_kernel_dim":3)"))
                  .message,
              HasSubstr("linear_conv_kernel_dim is 3"));
  EXPECT_THAT(refused(with(saved, R"("linear_head_dim":64,)", "")).message,
              HasSubstr("linear_head_dim is missing"));
}

}  // namespace
}  // namespace hocket
