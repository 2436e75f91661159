// The families of 2025 and 2026 as published: the important fields of config.json, and their
// meaning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compute/weights/config_testing.h"
#include "compute/weights/hf_families.h"
#include "compute/weights/quant_config.h"

namespace hocket {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Scaling = RopeConfig::Scaling;
using Style = RopeConfig::Style;

const std::string kGlm47Flash = R"({"architectures":["Glm4MoeLiteForCausalLM"],
  "attention_bias":false,"eos_token_id":[154820,154827,154829],"first_k_dense_replace":1,
  "hidden_act":"silu","hidden_size":2048,"intermediate_size":10240,"kv_lora_rank":512,
  "max_position_embeddings":202752,"moe_intermediate_size":1536,"n_group":1,"n_routed_experts":64,
  "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":20,"num_experts_per_tok":4,
  "num_hidden_layers":47,"num_key_value_heads":20,"num_nextn_predict_layers":1,
  "partial_rotary_factor":1.0,"q_lora_rank":768,"qk_nope_head_dim":192,"qk_rope_head_dim":64,
  "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,"routed_scaling_factor":1.8,
  "tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc","v_head_dim":256,
  "vocab_size":154880})";

TEST(NewerFamilies, Glm47FlashIsDeepseekV3WithOtherNumbers) {
  const ModelConfig m = parsed(kGlm47Flash);
  EXPECT_EQ(m.mla.q_rank, 768);
  EXPECT_EQ(m.mla.value_dim, 256);
  EXPECT_EQ(m.head_dim, 256);
  EXPECT_EQ(m.rope.style, Style::interleaved);
  EXPECT_EQ(m.moe.top_k, 4);
  EXPECT_EQ(m.moe.scaling_factor, 1.8);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::sigmoid);
  EXPECT_EQ(moe_layers(m), 46);
  EXPECT_EQ(m.num_mtp_layers, 1);
}

TEST(NewerFamilies, AListMayNameTheLayersWithExperts) {
  const std::string small =
      with(kGlm47Flash, R"("num_hidden_layers":47)", R"("num_hidden_layers":3)");
  const std::string key = R"("first_k_dense_replace":1)";
  const ModelConfig m =
      parsed(with(small, key, R"("mlp_layer_types":["sparse","dense","sparse"])"));
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{true, false, true}));
  EXPECT_THAT(refused(with(small, key, R"("mlp_layer_types":["sparse","dense"])")).message,
              HasSubstr("mlp_layer_types has 2 entries for 3 layers"));
  EXPECT_THAT(refused(with(small, key, R"("mlp_layer_types":["sparse","dense","x"])")).message,
              HasSubstr("mlp_layer_types holds \"x\""));
}

const std::string kMiniMaxM2 = R"({"architectures":["MiniMaxM2ForCausalLM"],
  "attn_type_list":[1,1,1],"bos_token_id":200034,"eos_token_id":200020,"head_dim":128,
  "hidden_act":"silu","hidden_size":3072,"intermediate_size":1536,
  "max_position_embeddings":196608,"mtp_transformer_layers":1,"num_attention_heads":48,
  "num_experts_per_tok":8,"num_hidden_layers":3,"num_key_value_heads":8,"num_local_experts":256,
  "num_mtp_modules":3,"qk_norm_type":"per_layer","quantization_config":{
  "activation_scheme":"dynamic","fmt":"float8_e4m3fn","quant_method":"fp8",
  "weight_block_size":[128,128],"modules_to_not_convert":["gate","e_score_correction_bias",
  "lm_head"]},"rms_norm_eps":1e-06,"rope_theta":5000000,
  "rotary_dim":64,"scoring_func":"sigmoid","shared_intermediate_size":0,
  "tie_word_embeddings":false,"use_mtp":true,"use_qk_norm":true,"use_routing_bias":true,
  "vocab_size":200064})";

TEST(NewerFamilies, MiniMaxM2) {
  const ModelConfig m = parsed(kMiniMaxM2);
  EXPECT_TRUE(m.qk_norm && m.qk_norm_over_heads);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  EXPECT_EQ(m.rope.theta, 5e6);
  EXPECT_EQ(m.moe.num_experts, 256);
  EXPECT_EQ(m.moe.intermediate_size, 1536);
  EXPECT_EQ(m.moe.shared_intermediate_size, 0);
  EXPECT_TRUE(m.moe.correction_bias && m.moe.norm_topk_prob);
  EXPECT_EQ(moe_layers(m), 3);
  EXPECT_EQ(m.quant.layout, QuantConfig::Layout::fp8_block);
  EXPECT_TRUE(is_quantized(m.quant, "model.layers.0.block_sparse_moe.experts.0.w1"));
  EXPECT_FALSE(is_quantized(m.quant, "model.layers.0.block_sparse_moe.gate"));
  EXPECT_THAT(refused(with(kMiniMaxM2, "float8_e4m3fn", "float8_e5m2")).message,
              HasSubstr("fmt is \"float8_e5m2\""));
  // The newer form of rotary_dim.
  EXPECT_EQ(parsed(with(kMiniMaxM2, R"("rotary_dim":64)", R"("partial_rotary_factor":0.5)"))
                .rope.rotary_dim,
            64);
  EXPECT_THAT(refused(with(kMiniMaxM2, "[1,1,1]", "[1,0,1]")).message, HasSubstr("attn_type_list"));
  EXPECT_THAT(refused(with(kMiniMaxM2, "per_layer", "per_head")).message,
              HasSubstr("qk_norm_type"));
  EXPECT_THAT(refused(with(kMiniMaxM2, R"("use_routing_bias":true)", R"("use_routing_bias":false)"))
                  .message,
              HasSubstr("use_routing_bias"));
  EXPECT_THAT(refused(with(kMiniMaxM2, R"("shared_intermediate_size":0)",
                           R"("shared_intermediate_size":9)"))
                  .message,
              HasSubstr("shared_intermediate_size"));
}

const std::string kErnie45 = R"({"architectures":["Ernie4_5_MoeForCausalLM"],"bos_token_id":1,
  "eos_token_id":2,"hidden_act":"silu","hidden_size":2560,"intermediate_size":12288,
  "max_position_embeddings":131072,"moe_gate":"topk","moe_intermediate_size":1536,"moe_k":6,
  "moe_layer_end_index":-1,"moe_layer_interval":2,"moe_layer_start_index":1,
  "moe_num_experts":64,"moe_num_shared_experts":2,"moe_use_aux_free":true,
  "num_attention_heads":20,"num_hidden_layers":6,"num_key_value_heads":4,"rms_norm_eps":1e-05,
  "rope_theta":500000,"tie_word_embeddings":true,"use_bias":false,"vocab_size":103424})";

TEST(NewerFamilies, Ernie45) {
  const std::string& ernie = kErnie45;
  const ModelConfig m = parsed(ernie);
  EXPECT_EQ(m.rope.style, Style::interleaved);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::softmax);
  EXPECT_TRUE(m.moe.correction_bias && m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.top_k, 6);
  EXPECT_EQ(m.moe.shared_intermediate_size, 3072);
  EXPECT_EQ(m.layer_is_moe, (std::vector<bool>{false, true, false, true, false, true}));
  EXPECT_EQ(
      parsed(with(ernie, R"("moe_layer_end_index":-1)", R"("moe_layer_end_index":3)")).layer_is_moe,
      (std::vector<bool>{false, true, false, true, false, false}));
  const ModelConfig bare = parsed(
      with(with(ernie, R"("tie_word_embeddings":true,)", ""), R"("rms_norm_eps":1e-05,)", ""));
  EXPECT_TRUE(bare.tie_word_embeddings);
  EXPECT_EQ(bare.rms_norm_eps, 1e-5);
  EXPECT_THAT(refused(with(ernie, R"("use_bias":false)", R"("use_bias":true)")).message,
              HasSubstr("use_bias"));
  EXPECT_THAT(
      refused(with(ernie, R"("moe_use_aux_free":true)", R"("moe_use_aux_free":false)")).message,
      HasSubstr("moe_use_aux_free"));
}

const std::string kKimiK25 = R"({"architectures":["KimiK25ForConditionalGeneration"],
  "media_placeholder_token_id":163605,"eos_token_id":163586,"tie_word_embeddings":true,
  "vision_config":{"patch_size":14},"text_config":{"architectures":["DeepseekV3ForCausalLM"],
  "first_k_dense_replace":1,"hidden_act":"silu","hidden_size":7168,"intermediate_size":18432,
  "kv_lora_rank":512,"max_position_embeddings":262144,"model_type":"kimi_k2",
  "moe_intermediate_size":2048,"n_group":1,"n_routed_experts":384,"n_shared_experts":1,
  "norm_topk_prob":true,"num_attention_heads":64,"num_experts_per_tok":8,"num_hidden_layers":61,
  "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"quantization_config":{
  "config_groups":{"group_0":{"input_activations":null,"output_activations":null,
  "targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,"strategy":"group",
  "group_size":32,"dynamic":false}}},"format":"pack-quantized","ignore":["lm_head",
  "re:.*self_attn.*"],"quant_method":"compressed-tensors"},"rms_norm_eps":1e-05,
  "rope_theta":50000.0,"routed_scaling_factor":2.827,"scoring_func":"sigmoid",
  "tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc","v_head_dim":128,
  "vocab_size":163840}})";

TEST(NewerFamilies, ATextModelMayBeNested) {
  const ModelConfig m = parsed(kKimiK25);
  EXPECT_EQ(m.architecture, "KimiK25ForConditionalGeneration");
  EXPECT_EQ(m.vocab_size, 163840);
  EXPECT_EQ(m.mla.kv_rank, 512);
  EXPECT_FALSE(m.tie_word_embeddings) << "the head belongs to the language model";
  EXPECT_EQ(m.quant.layout, QuantConfig::Layout::packed);
  EXPECT_THAT(m.left_aside, ElementsAre("vision_config"));
  EXPECT_THAT(m.placeholder_ids, ElementsAre(TokenId{163605}));
  EXPECT_THAT(m.eos_ids, Contains(TokenId{163586}));
  EXPECT_THAT(
      refused(with(kKimiK25, R"("kv_lora_rank":512)", R"("kv_lora_rank":8,"kv_lora_rank":512)"))
          .message,
      HasSubstr("text_config holds the key \"kv_lora_rank\" twice"));
  EXPECT_THAT(refused(R"({"architectures":["KimiK25ForConditionalGeneration"]})").message,
              HasSubstr("text_config is missing"));
  EXPECT_THAT(
      refused(with(kKimiK25, R"("patch_size":14})", R"("patch_size":14},"n_group":7)")).message,
      HasSubstr("n_group"));
  EXPECT_THAT(refused(with(kGlm47Flash, "{", R"({"text_config":{},)")).message,
              HasSubstr("text_config"));
}

const std::string kQwen3VlText = R"({"architectures":["Qwen3MoeForCausalLM"],
  "attention_bias":false,"decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu",
  "hidden_size":4096,"intermediate_size":12288,"max_position_embeddings":262144,
  "mlp_only_layers":[],"moe_intermediate_size":1536,"norm_topk_prob":true,
  "num_attention_heads":64,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":94,
  "num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_theta":5000000,"vocab_size":151936,
  "rope_scaling":{"rope_type":"default","mrope_interleaved":true,"mrope_section":[24,20,20]}})";

// Returns the config of a model that wraps `text`, beside the keys `top`.
std::string qwen3_vl(const std::string& text, const std::string& top = "") {
  return R"({"architectures":["Qwen3VLMoeForConditionalGeneration"],"image_token_id":151655,
             "video_token_id":151656,"vision_config":{},)" +
         top + R"("text_config":)" + text + "}";
}

TEST(NewerFamilies, Qwen3VlReadsItsTextModel) {
  const ModelConfig m = parsed(qwen3_vl(kQwen3VlText));
  EXPECT_TRUE(m.qk_norm && !m.qk_norm_over_heads);
  EXPECT_EQ(m.moe.stacked, MoeConfig::Stacked::inputs_first);
  EXPECT_EQ(m.rope.scaling, Scaling::none);
  EXPECT_EQ(m.placeholder_ids.size(), 2u);
  EXPECT_TRUE(m.moe.norm_topk_prob);
  for (const char* other : {"", R"("norm_topk_prob":false,)"}) {
    const std::string text = with(kQwen3VlText, R"("norm_topk_prob":true,)", other);
    EXPECT_TRUE(parsed(qwen3_vl(text)).moe.norm_topk_prob) << other;
  }
  EXPECT_THAT(refused(kQwen3VlText).message, HasSubstr("mrope_section"));
  const std::string yarn = R"("rope_type":"yarn","factor":2)";
  EXPECT_THAT(refused(with(kQwen3VlText, R"("rope_type":"default")", yarn)).message,
              HasSubstr("mrope_section"));
}

TEST(NewerFamilies, APartThatHasTheHeadSaysWhetherItIsTheEmbedding) {
  const std::string yes = R"("tie_word_embeddings":true,)", no = R"("tie_word_embeddings":false,)";
  const auto vl = [](const std::string& top, const std::string& inner) {
    return parsed(qwen3_vl(with(kQwen3VlText, "{", "{" + inner), top)).tie_word_embeddings;
  };
  EXPECT_FALSE(vl(no, yes));
  EXPECT_TRUE(vl(yes, no));
  EXPECT_TRUE(vl("", yes)) << "the inner key alone";
  EXPECT_TRUE(vl(yes, "")) << "the outer key alone";
  EXPECT_FALSE(vl("", ""));
  const std::string inner_alone = with(with(kKimiK25, yes, ""), no, yes);
  EXPECT_TRUE(parsed(with(inner_alone, "{", "{" + no)).tie_word_embeddings)
      << "the head belongs to the language model";
}

const std::string kMistral4 = R"({"architectures":["Mistral4ForCausalLM"],"hidden_act":"silu",
  "first_k_dense_replace":0,"hidden_size":4096,"intermediate_size":12288,"kv_lora_rank":256,
  "max_position_embeddings":1048576,"moe_intermediate_size":2048,"n_group":1,
  "n_routed_experts":128,"n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":32,
  "num_experts_per_tok":4,"num_hidden_layers":36,"q_lora_rank":1024,"qk_nope_head_dim":64,
  "qk_rope_head_dim":64,"rms_norm_eps":1e-06,"rope_parameters":{"rope_type":"yarn",
  "rope_theta":10000.0,"factor":128.0,"original_max_position_embeddings":8192,"mscale":1.0,
  "mscale_all_dim":1.0,"llama_4_scaling_beta":0.1},"routed_scaling_factor":1.0,"topk_group":1,
  "v_head_dim":128,"vocab_size":131072})";

TEST(NewerFamilies, Mistral4) {
  const ModelConfig m = parsed(kMistral4);
  EXPECT_EQ(m.rope.query_beta, 0.1);
  EXPECT_EQ(m.rope.original_context, 8192);
  EXPECT_EQ(m.moe.score, MoeConfig::Score::softmax);
  EXPECT_FALSE(m.moe.correction_bias);
  EXPECT_TRUE(m.moe.norm_topk_prob);
  EXPECT_EQ(m.moe.stacked, MoeConfig::Stacked::outputs_first);
  EXPECT_EQ(moe_layers(m), 36);
  EXPECT_THAT(refused(with(with(kMistral4, "Mistral4", "DeepseekV3"), R"("n_group":1)",
                           R"("n_group":1,"scoring_func":"sigmoid","topk_method":"noaux_tc")"))
                  .message,
              HasSubstr("llama_4_scaling_beta"));
}

// The library's values, with which it computes a folder that leaves the keys out.
TEST(NewerFamilies, MissingKeysOfRotationHaveTheFamilysValues) {
  const auto theta = [](const std::string& json, const std::string& key) {
    return parsed(with(json, key, "")).rope.theta;
  };
  EXPECT_EQ(theta(kMiniMaxM2, R"("rope_theta":5000000,)"), 5e6);
  EXPECT_EQ(theta(kErnie45, R"("rope_theta":500000,)"), 5e5);
  EXPECT_EQ(parsed(qwen3_vl(with(kQwen3VlText, R"("rope_theta":5000000,)", ""))).rope.theta, 5e5);

  const ModelConfig whole = parsed(kMistral4);
  const size_t begin = kMistral4.find(R"("rope_parameters")");
  std::string without = kMistral4;
  without.erase(begin, kMistral4.find('}') + 2 - begin);
  const ModelConfig m = parsed(without);
  EXPECT_EQ(m.rope.scaling, Scaling::yarn);
  EXPECT_EQ(m.rope.theta, 10000);
  EXPECT_EQ(m.rope.factor, 128);
  EXPECT_EQ(m.rope.original_context, 8192);
  EXPECT_EQ(m.rope.mscale, 1);
  EXPECT_EQ(m.rope.query_beta, 0.1);
  EXPECT_EQ(m.rope.rotary_dim, 64);
  EXPECT_EQ(m.softmax_scale, whole.softmax_scale) << "YaRN's factor is in it";
}

TEST(NewerFamilies, TheShareOfMistral4ThatIsRotatedIsOneOfAWholeHead) {
  const auto shared = [](const std::string& share) {
    return with(kMistral4, R"("factor":128.0)",
                R"("factor":128.0,"partial_rotary_factor":)" + share);
  };
  EXPECT_EQ(parsed(kMistral4).rope.rotary_dim, 64);
  EXPECT_EQ(parsed(shared("0.5")).rope.rotary_dim, 64);
  for (const char* share : {"0.25", "1.0"})
    EXPECT_THAT(refused(shared(share)).message, HasSubstr("partial_rotary_factor")) << share;
  // 44 times this quotient is a little less than 30.
  const std::string odd = with(
      with(shared("0.6818181818181818"), R"("qk_nope_head_dim":64)", R"("qk_nope_head_dim":14)"),
      R"("qk_rope_head_dim":64)", R"("qk_rope_head_dim":30)");
  EXPECT_EQ(parsed(odd).rope.rotary_dim, 30);
}

TEST(NewerFamilies, AWrapperOfMistralHoldsTextModelsOfSeveralKinds) {
  const auto wrapped = [](const std::string& kind) {
    return R"({"architectures":["Mistral3ForConditionalGeneration"],"image_token_index":10,
               "vision_config":{},"text_config":)" +
           with(kMistral4, "{", "{" + kind) + "}";
  };
  const ModelConfig m = parsed(wrapped(R"("model_type":"mistral4",)"));
  EXPECT_EQ(m.mla.kv_rank, 256);
  EXPECT_EQ(m.rope.query_beta, 0.1);
  EXPECT_THAT(m.left_aside, ElementsAre("vision_config"));
  EXPECT_THAT(m.placeholder_ids, ElementsAre(TokenId{10}));
  EXPECT_THAT(refused(wrapped(R"("model_type":"ministral3",)")).message,
              HasSubstr("model_type is \"ministral3\""));
  EXPECT_THAT(refused(wrapped("")).message, HasSubstr("model_type is \"mistral\""));
}

}  // namespace
}  // namespace hocket
