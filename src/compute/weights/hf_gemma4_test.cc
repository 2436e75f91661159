// Gemma 4's config.json: the important fields as published, with fewer layers.
#include "compute/weights/hf_gemma4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compute/weights/config_testing.h"

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kGemma4 = R"({"architectures":["Gemma4ForConditionalGeneration"],
  "audio_config":null,"audio_token_id":258881,"eos_token_id":[1,106],"image_token_id":258880,
  "text_config":{"attention_bias":false,"attention_k_eq_v":true,"bos_token_id":2,
  "dtype":"bfloat16","enable_moe_block":true,"eos_token_id":1,"final_logit_softcapping":30.0,
  "global_head_dim":512,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
  "hidden_size":2816,"hidden_size_per_layer_input":0,"intermediate_size":2112,
  "layer_types":["sliding_attention","full_attention"],"max_position_embeddings":262144,
  "moe_intermediate_size":704,"num_attention_heads":16,"num_experts":128,
  "num_global_key_value_heads":2,"num_hidden_layers":2,"num_key_value_heads":8,
  "num_kv_shared_layers":0,"rms_norm_eps":1e-06,
  "rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,
  "rope_type":"proportional"},"sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}},
  "sliding_window":1024,"tie_word_embeddings":true,"top_k_experts":8,
  "use_bidirectional_attention":"vision","vocab_size":262144},"video_token_id":258884,
  "vision_config":{"depth":27}})";

TEST(Gemma4, HasHeadsAndAnglesForEachKindOfLayers) {
  const ModelConfig m = parsed(kGemma4);
  EXPECT_EQ(m.attention(0).num_kv_heads, 8);
  EXPECT_EQ(m.attention(0).key_dim, 256);
  EXPECT_EQ(m.attention(0).value_dim, 256);
  EXPECT_EQ(m.attention(0).visible.window, 1024);
  EXPECT_FALSE(m.attention(0).values_are_keys);
  EXPECT_EQ(m.attention(1).num_kv_heads, 2);
  EXPECT_EQ(m.attention(1).key_dim, 512);
  EXPECT_EQ(m.attention(1).value_dim, 512);
  EXPECT_EQ(m.attention(1).visible.window, 0);
  EXPECT_TRUE(m.attention(1).values_are_keys);
  EXPECT_TRUE(m.qk_norm && m.value_norm);
  EXPECT_EQ(m.softmax_scale, 1);
  EXPECT_EQ(m.rope_of(0).theta, 1e4);
  EXPECT_EQ(m.rope_of(0).rotary_dim, 256);
  EXPECT_EQ(m.rope_of(1).theta, 1e6);
  EXPECT_EQ(m.rope_of(1).scaling, RopeConfig::Scaling::proportional);
  EXPECT_EQ(m.rope_of(1).rotary_dim, 512);
  EXPECT_EQ(m.rope_of(1).turning_dim, 128);
}

TEST(Gemma4, HasExpertsBesideADenseMlp) {
  const ModelConfig m = parsed(kGemma4);
  EXPECT_TRUE(m.result_norms);
  EXPECT_EQ(m.moe.num_experts, 128);
  EXPECT_EQ(m.moe.top_k, 8);
  EXPECT_EQ(m.moe.intermediate_size, 704);
  EXPECT_EQ(m.moe.shared_intermediate_size, 2112);
  EXPECT_EQ(m.moe.activation_in(1).kind, Activation::Kind::gelu_tanh);
  EXPECT_EQ(m.moe.shared_activation_in(1).kind, Activation::Kind::gelu_tanh);
  EXPECT_TRUE(m.moe.norm_topk_prob && m.moe.expert_scales);
  EXPECT_EQ(m.moe.logit_scale, 1 / std::sqrt(2816.0));
  EXPECT_EQ(moe_layers(m), 2);
  EXPECT_EQ(m.embedding_scale, 53);  // the root of 2816 in bfloat16
  EXPECT_EQ(m.logit_cap, 30);
  EXPECT_TRUE(m.tie_word_embeddings);
  EXPECT_THAT(m.left_aside, ElementsAre("vision_config"));
  EXPECT_EQ(m.placeholder_ids.size(), 3);
}

TEST(Gemma4, MissingKeysHaveTheLibrarysValues) {
  std::string few = with(kGemma4, R"("layer_types":["sliding_attention","full_attention"],)", "");
  few = with(few, R"("num_hidden_layers":2)", R"("num_hidden_layers":8)");
  few = with(few, R"("tie_word_embeddings":true,)", "");
  const size_t begin = few.find(R"("rope_parameters")"), end = few.find(R"("sliding_window")");
  const ModelConfig m = parsed(few.erase(begin, end - begin));
  EXPECT_EQ(m.layer_is_local,
            (std::vector<bool>{true, true, true, true, true, false, true, false}));
  EXPECT_TRUE(m.tie_word_embeddings);
  EXPECT_EQ(m.rope_of(0).theta, 1e4);
  EXPECT_EQ(m.rope_of(5).theta, 1e6);
  EXPECT_EQ(m.rope_of(5).rotary_dim, 512);
  EXPECT_EQ(m.rope_of(5).turning_dim, 128);
}

TEST(Gemma4, IsRefusedWhereItWouldBeAnotherModel) {
  const auto why = [&](const std::string& from, const std::string& to) {
    return refused(with(kGemma4, from, to)).message;
  };
  EXPECT_THAT(why(R"("hidden_size_per_layer_input":0,)", ""),
              HasSubstr("hidden_size_per_layer_input"));
  EXPECT_THAT(why(R"("num_kv_shared_layers":0)", R"("num_kv_shared_layers":1)"),
              HasSubstr("num_kv_shared_layers"));
  EXPECT_THAT(why(R"("enable_moe_block":true)", R"("enable_moe_block":false)"),
              HasSubstr("enable_moe_block"));
  EXPECT_THAT(why(R"("vision","vocab)", R"("all","vocab)"),
              HasSubstr("use_bidirectional_attention is \"all\""));
  EXPECT_THAT(why("gelu_pytorch_tanh", "silu"), HasSubstr("hidden_activation"));
  EXPECT_THAT(
      why(R"(["sliding_attention","full_attention"])", R"(["full_attention","sliding_attention"])"),
      HasSubstr("the last of layer_types"));
  EXPECT_THAT(why(R"("rope_type":"proportional")", R"("factor":8,"rope_type":"proportional")"),
              HasSubstr("proportional rope scaling has the factor 8"));
  EXPECT_THAT(why(R"("num_global_key_value_heads":2)", R"("num_global_key_value_heads":3)"),
              HasSubstr("no multiple of the 3 heads"));
  EXPECT_THAT(why(R"("num_experts":128)", R"("num_experts":0)"), HasSubstr("num_experts is 0"));
  for (const std::string cap : {"1e-60", "0.0009", "-1", "1e7"})
    EXPECT_THAT(why(R"("final_logit_softcapping":30.0)", R"("final_logit_softcapping":)" + cap),
                HasSubstr("final_logit_softcapping is"));
  EXPECT_EQ(parsed(with(kGemma4, "softcapping\":30.0", "softcapping\":0.001")).logit_cap, 0.001);
  EXPECT_EQ(parsed(with(kGemma4, "softcapping\":30.0", "softcapping\":0")).logit_cap, 0);
}

TEST(Gemma4, IsRefusedIfAHeadsDimsCannotBePaired) {
  const std::string key = R"("global_head_dim":512)", odd = R"("global_head_dim":513)";
  const std::string message = "heads of full_attention have 513 dimensions";
  EXPECT_THAT(refused(with(kGemma4, key, odd)).message, HasSubstr(message));
  std::string without = with(kGemma4, key, odd);
  const size_t begin = without.find(R"("rope_parameters")");
  without.erase(begin, without.find(R"("sliding_window")") - begin);
  EXPECT_THAT(refused(without).message, HasSubstr(message));
  EXPECT_THAT(refused(with(kGemma4, R"("head_dim":256)", R"("head_dim":255)")).message,
              HasSubstr("255 of 255 dimensions"));
}

TEST(Gemma4, HeadsOfSingleLayersAreThoseOfTheirKind) {
  const std::string older = R"("global_head_dim":512,)", kinds = R"("num_hidden_layers":2)";
  const auto newer = [&](const std::string& layers) {
    std::string text = with(kGemma4, older, R"("per_layer_config":)" + layers + ",");
    return with(text, R"("num_global_key_value_heads":2,)", "");
  };
  const ModelConfig m = parsed(newer(R"({"01":{"head_dim":512,"num_key_value_heads":2}})"));
  const ModelConfig same = parsed(kGemma4);
  for (const int layer : {0, 1}) {
    EXPECT_EQ(m.attention(layer).key_dim, same.attention(layer).key_dim);
    EXPECT_EQ(m.attention(layer).num_kv_heads, same.attention(layer).num_kv_heads);
    EXPECT_EQ(m.rope_of(layer).rotary_dim, same.rope_of(layer).rotary_dim);
  }
  // A layer that is not named has the model's own heads, whatever the older keys say.
  EXPECT_EQ(parsed(newer("{}")).attention(1).key_dim, 256);
  EXPECT_EQ(parsed(newer("{}")).attention(1).num_kv_heads, 8);
  EXPECT_EQ(
      parsed(with(kGemma4, older, older + R"("per_layer_config":{"1":{}},)")).attention(1).key_dim,
      256);
  EXPECT_EQ(parsed(newer("null")).attention(1).key_dim, 512);
  EXPECT_EQ(parsed(newer(R"({"0":{"head_dim":256},"1":{"head_dim":128}})")).attention(1).key_dim,
            128);

  const auto why = [&](const std::string& layers) { return refused(newer(layers)).message; };
  EXPECT_THAT(why(R"({"0":{"head_dim":512},"1":{"head_dim":512}})"),
              HasSubstr("per_layer_config gives layer 0 8 heads of keys of 512 numbers, but "
                        "supported are equal ones in all layers of sliding_attention"));
  EXPECT_THAT(why(R"({"1":{"head_dim":512,"sliding_window":7}})"),
              HasSubstr("per_layer_config: 1: \"sliding_window\" is 7, but supported are head_dim "
                        "and num_key_value_heads there"));
  EXPECT_THAT(why(R"({"2":{}})"),
              HasSubstr("per_layer_config names the layer \"2\", but layers are 0 to 1"));
  for (const char* name : {"x", "", "1x", "-1", "99999999999999999999"})
    EXPECT_THAT(why(std::string("{\"") + name + "\":{}}"), HasSubstr("names the layer"));
  EXPECT_THAT(why(R"({"0":{},"1":{},"01":{}})"), HasSubstr("names 3 layers, but the model has 2"));
  EXPECT_THAT(why(R"({"1":{"head_dim":0}})"), HasSubstr("head_dim is 0"));
  EXPECT_THAT(why(R"({"1":5})"), HasSubstr("must be an object"));
  EXPECT_THAT(why("[]"), HasSubstr("per_layer_config is []"));
  EXPECT_THAT(why(R"({"1":{"num_key_value_heads":3}})"), HasSubstr("no multiple of the 3 heads"));
  std::string three = with(newer(R"({"1":{"head_dim":512}})"), kinds, R"("num_hidden_layers":3)");
  three = with(three, R"("full_attention"],)", R"("full_attention","full_attention"],)");
  EXPECT_THAT(refused(three).message, HasSubstr("gives layer 1 8 heads of keys of 512 numbers"));
}

TEST(Gemma4, IsRefusedWithoutAnglesForEachKindOfLayers) {
  const size_t begin = kGemma4.find(R"("rope_parameters")");
  const std::string both = kGemma4.substr(begin, kGemma4.find(R"("sliding_window")") - begin);
  const auto why = [&](const std::string& to) { return refused(with(kGemma4, both, to)).message; };
  EXPECT_THAT(why(R"("rope_parameters":{"rope_theta":1e6,"rope_type":"default"},)"),
              HasSubstr("no dictionary for the layers of sliding_attention"));
  EXPECT_THAT(why(R"("rope_parameters":{"sliding_attention":{"rope_theta":1e4}},)"),
              HasSubstr("no dictionary for the layers of full_attention"));
  EXPECT_THAT(why(R"("rope_parameters":{"sliding_attention":{},"full_attention":1},)"),
              HasSubstr("full_attention is 1, but must be an object"));
  EXPECT_THAT(why(R"("rope_scaling":{"rope_type":"linear","factor":2},)"),
              HasSubstr("rope_scaling is"));
  EXPECT_THAT(why(R"("partial_rotary_factor":0.5,)"), HasSubstr("partial_rotary_factor is 0.5"));
}

}  // namespace
}  // namespace hocket
