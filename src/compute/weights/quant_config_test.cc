#include "compute/weights/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "compute/weights/config_testing.h"
#include "compute/weights/hf_config.h"

namespace hocket {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using QuantLayout = QuantConfig::Layout;

Result<ModelConfig> model_with(const std::string& quantization,
                               const std::string& key = "quantization_config") {
  return parse_hf_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":512,
      "hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
      "max_position_embeddings":1024,")" +
                         key + "\":" + quantization + "}");
}

QuantConfig read(const std::string& quantization) {
  const auto model = model_with(quantization);
  EXPECT_TRUE(model.has_value()) << describe(model.error());
  return model ? model->quant : QuantConfig{};
}

Error refused_quant(const std::string& quantization) {
  const auto model = model_with(quantization);
  EXPECT_FALSE(model.has_value()) << quantization;
  return model ? Error{} : model.error();
}

std::string compressed(const std::string& format, const std::string& weights,
                       const std::string& activations, const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","quantization_status":"compressed",
      "kv_cache_scheme":null,"ignore":["lm_head"],"format":")" +
         format + R"(","config_groups":{"group_0":{"targets":["Linear"],"output_activations":null,
      "input_activations":)" +
         activations + R"(,"weights":{"observer":"minmax","dynamic":false,)" + weights + "}}}" +
         more + "}";
}
const std::string kInt8Token =
    R"({"num_bits":8,"type":"int","strategy":"token","symmetric":true,"dynamic":true})";
const std::string kFp8Token =
    R"({"num_bits":8,"type":"float","strategy":"token","symmetric":true,"dynamic":true})";
const std::string kInt8Channel =
    R"("num_bits":8,"type":"int","strategy":"channel","symmetric":true,"group_size":null)";
const std::string kFp8Channel =
    R"("num_bits":8,"type":"float","strategy":"channel","symmetric":true)";
const std::string kInt4Group =
    R"("num_bits":4,"type":"int","strategy":"group","symmetric":true,"group_size":128)";

TEST(QuantConfig, AbsentOrNullIsNone) {
  EXPECT_EQ(read("null").layout, QuantLayout::none);
  EXPECT_FALSE(is_quantized(read("null"), "model.layers.0.mlp.up_proj"));
}

TEST(QuantConfig, Fp8InBlocks) {
  const QuantConfig deepseek = read(
      R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","scale_fmt":"ue8m0",
          "weight_block_size":[128,128]})");
  EXPECT_EQ(deepseek.layout, QuantLayout::fp8_block);
  EXPECT_EQ(deepseek.group, 128);
  EXPECT_THAT(deepseek.skipped, IsEmpty());
  const QuantConfig qwen = read(
      R"({"activation_scheme":"dynamic","quant_method":"fp8","weight_block_size":[128,128],
          "modules_to_not_convert":["lm_head","model.layers.0.mlp.gate"],
          "ignored_layers":["model.layers.1.self_attn"]})");
  EXPECT_THAT(qwen.skipped,
              ElementsAre("lm_head", "model.layers.0.mlp.gate", "model.layers.1.self_attn"));
}

TEST(QuantConfig, Fp8WithOneScaleAMatrix) {
  const QuantConfig mistral = read(
      R"({"activation_scheme":"static","quant_method":"fp8","weight_block_size":null,
          "modules_to_not_convert":["model.vision_tower","lm_head"]})");
  EXPECT_EQ(mistral.layout, QuantLayout::fp8_block);
  EXPECT_EQ(mistral.group, 0);
  EXPECT_EQ(read(R"({"activation_scheme":"dynamic","quant_method":"fp8"})").group, 0);
}

TEST(QuantConfig, CompressedTensors) {
  const QuantConfig w8a8 = read(compressed("int-quantized", kInt8Channel, kInt8Token));
  EXPECT_EQ(w8a8.layout, QuantLayout::int8_channel);
  EXPECT_EQ(w8a8.group, 0);
  EXPECT_THAT(w8a8.skipped, ElementsAre("lm_head"));
  EXPECT_EQ(
      read(compressed("int-quantized", with(kInt8Channel, "true", "false"), kInt8Token)).layout,
      QuantLayout::int8_channel);
  for (const std::string& activations : {kFp8Token, std::string("null")})
    EXPECT_EQ(read(compressed("float-quantized", kFp8Channel, activations)).layout,
              QuantLayout::fp8_channel);
  EXPECT_EQ(read(compressed("naive-quantized", kFp8Channel, kFp8Token)).layout,
            QuantLayout::fp8_channel);
  const QuantConfig w4a16 = read(compressed("pack-quantized", kInt4Group, "null"));
  EXPECT_EQ(w4a16.layout, QuantLayout::packed);
  EXPECT_EQ(w4a16.group, 128);
  for (const char* group : {"32", "64"})
    EXPECT_EQ(read(compressed("pack-quantized", with(kInt4Group, "128", group), "null")).group,
              std::stoi(group));
  const QuantConfig channel = read(
      compressed("pack-quantized",
                 R"("num_bits":4,"type":"int","strategy":"channel","symmetric":false)", "null"));
  EXPECT_EQ(channel.layout, QuantLayout::packed);
  EXPECT_EQ(channel.group, 0);
  for (const char* order : {"null", "false", R"("weight")", R"("static")"})
    EXPECT_EQ(read(compressed("pack-quantized", kInt4Group + R"(,"actorder":)" + std::string(order),
                              "null"))
                  .layout,
              QuantLayout::packed);
  // The older name of the key, with harmless other fields.
  const auto older = model_with(
      compressed("int-quantized", kInt8Channel, kInt8Token,
                 R"(,"sparsity_config":{"format":"dense"},"transform_config":{},"version":"0.9")"),
      "compression_config");
  ASSERT_TRUE(older.has_value()) << describe(older.error());
  EXPECT_EQ(older->quant.layout, QuantLayout::int8_channel);
}

std::string mx_weights(int bits, const std::string& strategy, int group) {
  return R"("num_bits":)" + std::to_string(bits) +
         R"(,"type":"float","symmetric":true,"group_size":)" + std::to_string(group) +
         R"(,"strategy":")" + strategy + '"';
}
const std::string kFp4Rows =
    R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"dynamic":"local"})";

TEST(QuantConfig, MxFormatsOfCompressedTensors) {
  for (const std::string& rows : {std::string("null"), kFp4Rows, kFp8Token}) {
    const QuantConfig mxfp4 =
        read(compressed("mxfp4-pack-quantized", mx_weights(4, "group", 32), rows));
    EXPECT_EQ(mxfp4.layout, QuantLayout::mxfp4);
    EXPECT_EQ(read(compressed("mxfp8-quantized", mx_weights(8, "group", 32), rows)).layout,
              QuantLayout::mxfp8);
    EXPECT_EQ(
        read(compressed("nvfp4-pack-quantized", mx_weights(4, "tensor_group", 16), rows)).layout,
        QuantLayout::nvfp4);
    EXPECT_THAT(mxfp4.skipped, ElementsAre("lm_head"));
  }
  const std::string good =
      compressed("nvfp4-pack-quantized", mx_weights(4, "tensor_group", 16), "null");
  for (const auto& [from, to] : {std::pair(R"("group_size":16)", R"("group_size":32)"),
                                 {R"("num_bits":4)", R"("num_bits":8)"},
                                 {R"("type":"float")", R"("type":"int")"},
                                 {R"("symmetric":true)", R"("symmetric":false)"},
                                 {"tensor_group", "group"}})
    EXPECT_EQ(refused_quant(with(good, from, to)).code, ErrorCode::unsupported_model) << to;
  EXPECT_THAT(
      refused_quant(compressed("mxfp4-pack-quantized", mx_weights(4, "group", 32), kInt8Token))
          .message,
      HasSubstr("int8 a token"));
}

TEST(QuantConfig, MxFormatsOfOtherTools) {
  const QuantConfig gpt_oss = read(R"({"quant_method":"mxfp4","modules_to_not_convert":
      ["model.layers.*.self_attn","model.layers.*.mlp.router","model.embed_tokens","lm_head"]})");
  EXPECT_EQ(gpt_oss.layout, QuantLayout::mxfp4);
  EXPECT_FALSE(is_quantized(gpt_oss, "model.layers.11.self_attn.q_proj"));
  EXPECT_FALSE(is_quantized(gpt_oss, "lm_head"));
  EXPECT_TRUE(is_quantized(gpt_oss, "model.layers.11.mlp.experts.3.gate_proj"));
  EXPECT_TRUE(is_quantized(gpt_oss, "model.layers.11.self_attn_of_more"));
  const std::string mxfp8 = R"({"quant_method":"mxfp8","weight_block_size":[1,32]})";
  EXPECT_EQ(read(mxfp8).layout, QuantLayout::mxfp8);
  EXPECT_THAT(refused_quant(with(mxfp8, "[1,32]", "[1,16]")).message, HasSubstr("[1,16]"));
  const std::string modelopt = R"({"quant_method":"modelopt","quant_algo":"NVFP4",
      "kv_cache_scheme":{"num_bits":8,"type":"float"},"ignore":["lm_head","model.layers.*.mlp.gate",
      "*.self_attn*","mtp.fc"]})";
  const QuantConfig nvfp4 = read(modelopt);
  EXPECT_EQ(nvfp4.layout, QuantLayout::nvfp4);
  EXPECT_FALSE(is_quantized(nvfp4, "model.layers.3.mlp.gate"));
  EXPECT_TRUE(is_quantized(nvfp4, "model.layers.3.mlp.gate_proj"));
  EXPECT_FALSE(is_quantized(nvfp4, "model.layers.3.self_attn.q_proj"));
  EXPECT_FALSE(is_quantized(nvfp4, "mtp.fc"));
  for (const char* algo : {"FP8", "W4A8_AWQ", "MIXED_PRECISION", "NVFP4_AWQ"})
    EXPECT_THAT(refused_quant(with(modelopt, "NVFP4", algo)).message, HasSubstr(algo));
  EXPECT_THAT(refused_quant(R"({"quant_method":"modelopt"})").message,
              HasSubstr("quant_algo is missing"));
}

TEST(QuantConfig, TheFormatOfKeysAndValuesIsNotThatOfTheFiles) {
  const std::string int4 = compressed("pack-quantized", kInt4Group, "null");
  const std::string some = with(int4, R"("kv_cache_scheme":null)", R"("kv_cache_scheme":{"x":8})");
  EXPECT_EQ(read(some).layout, QuantLayout::packed);
}

TEST(QuantConfig, FormatMayStandInTheGroup) {
  const std::string mixed = with(compressed("mixed-precision", kInt4Group, "null"), R"("targets")",
                                 R"("format":"pack-quantized","targets")");
  EXPECT_EQ(read(mixed).layout, QuantLayout::packed);
}

TEST(QuantConfig, GroupsOfOneKindAreOneOfTwoAreRefused) {
  const std::string group = R"({"targets":["re:.*experts.*"],"weights":{)" + kInt4Group + "}}";
  const std::string other = with(group, "experts", "self_attn");
  const auto groups = [](const std::string& a, const std::string& b) {
    return R"({"quant_method":"compressed-tensors","format":"pack-quantized",
        "config_groups":{"a":)" +
           a + R"(,"b":)" + b + "}}";
  };
  const QuantConfig both = read(groups(group, other));
  EXPECT_TRUE(is_quantized(both, "model.layers.0.mlp.experts.1.up_proj"));
  EXPECT_TRUE(is_quantized(both, "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(is_quantized(both, "model.layers.0.mlp.up_proj"));
  const Error e = refused_quant(groups(group, with(other, "128", "32")));
  EXPECT_EQ(e.code, ErrorCode::unsupported_model);
  EXPECT_THAT(e.message, HasSubstr("config_groups of different kinds"));
  EXPECT_THAT(refused_quant(groups(group, with(other, "re:.*self_attn.*", "Embedding"))).message,
              HasSubstr("\"Embedding\""));
}

TEST(QuantConfig, Awq) {
  const QuantConfig awq = read(R"({"bits":4,"group_size":128,"modules_to_not_convert":null,
      "quant_method":"awq","version":"gemm","zero_point":true})");
  EXPECT_EQ(awq.layout, QuantLayout::awq);
  EXPECT_EQ(awq.group, 128);
  EXPECT_THAT(awq.skipped, IsEmpty());
  const QuantConfig older = read(R"({"w_bit":4,"q_group_size":64,"quant_method":"awq_marlin",
      "version":"GEMM","modules_to_not_convert":["shared_experts"]})");
  EXPECT_EQ(older.layout, QuantLayout::awq);
  EXPECT_EQ(older.group, 64);
  EXPECT_THAT(older.skipped, ElementsAre("shared_experts"));
}

TEST(QuantConfig, Gptq) {
  const std::string json = R"({"bits":4,"checkpoint_format":"gptq","damp_percent":0.01,
      "desc_act":false,"dynamic":null,"group_size":128,"lm_head":false,"pack_dtype":"int32",
      "quant_method":"gptq","sym":true,"static_groups":false,"true_sequential":true})";
  const QuantConfig v1 = read(json);
  EXPECT_EQ(v1.layout, QuantLayout::gptq);
  EXPECT_EQ(v1.group, 128);
  EXPECT_TRUE(v1.gptq_zeros_less_1);
  EXPECT_TRUE(read(with(json, R"("checkpoint_format":"gptq",)", "")).gptq_zeros_less_1);
  EXPECT_FALSE(read(with(json, R"("gptq",)", R"("gptq_v2",)")).gptq_zeros_less_1);
  EXPECT_EQ(read(with(json, R"("group_size":128)", R"("group_size":-1)")).group, 0);
  const QuantConfig some =
      read(with(json, R"("dynamic":null)", R"("dynamic":{"-:.*\\.shared_experts\\..*":{}})"));
  EXPECT_FALSE(is_quantized(some, "model.layers.3.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(is_quantized(some, "model.layers.3.mlp.experts.0.up_proj"));
}

TEST(QuantConfig, OtherMethodsAreRefusedByNameWithAWayOut) {
  for (const std::string method : {"bitsandbytes", "aqlm", "hqq", "quark", "eetq", "torchao",
                                   "fbgemm_fp8", "auto-round", "vptq", "higgs", "bitnet", "spqr"}) {
    const Error e = refused_quant("{\"quant_method\":\"" + method + "\",\"bits\":4}");
    EXPECT_EQ(e.code, ErrorCode::unsupported_model);
    EXPECT_THAT(e.message, AllOf(HasSubstr("quantization_config"), HasSubstr(method)));
    EXPECT_THAT(e.fix, AllOf(HasSubstr("AWQ"), HasSubstr("--quantization int8")));
  }
  EXPECT_THAT(refused_quant(R"({"load_in_4bit":true})").message,
              HasSubstr("quant_method is missing"));
}

TEST(QuantConfig, OtherFieldsAreRefusedByName) {
  const std::string fp8 = R"({"quant_method":"fp8","weight_block_size":[128,128],"x":0})";
  const std::string awq =
      R"({"quant_method":"awq","bits":4,"group_size":128,"version":"gemm","x":0})";
  const std::string gptq = R"({"quant_method":"gptq","bits":4,"group_size":128,"x":0})";
  const std::string int4 = compressed("pack-quantized", kInt4Group, "null", R"(,"x":0)");
  struct Case {
    const std::string& json;
    std::string from, to, named;
  };
  const std::vector<Case> cases = {
      {fp8, "[128,128]", "[1,128]", "[1,128]"},
      {fp8, R"("x":0)", R"("activation_scheme":"static")", "static"},
      {fp8, R"("x":0)", R"("fmt":"e5m2")", "e5m2"},
      {awq, "4", "8", "bits is 8"},
      {awq, "128", "48", "group_size is 48"},
      {awq, "gemm", "gemv", "gemv"},
      {awq, R"("x":0)", R"("backend":"llm-awq")", "llm-awq"},
      {gptq, "4", "2", "bits is 2"},
      {gptq, "4", "3", "bits is 3"},
      {gptq, "4", "8", "bits is 8"},
      {gptq, "128", "1024", "group_size is 1024"},
      {gptq, R"("x":0)", R"("desc_act":true)", "desc_act"},
      {gptq, R"("x":0)", R"("lm_head":true)", "lm_head"},
      {gptq, R"("x":0)", R"("checkpoint_format":"marlin")", "marlin"},
      {gptq, R"("x":0)", R"("pack_dtype":"int8")", "pack_dtype"},
      {gptq, R"("x":0)", R"("dynamic":{"+:.*":{"bits":8}})", "dynamic"},
      {int4, "128", "16", "group_size is 16"},
      {int4, R"("num_bits":4)", R"("num_bits":8)", "8 bits"},
      {int4, R"("num_bits":4)", R"("num_bits":3)", "3 bits"},
      {int4, R"("type":"int")", R"("type":"float")", "type \"float\""},
      {int4, R"("strategy":"group")", R"("strategy":"tensor")", "strategy \"tensor\""},
      {int4, R"("symmetric":true)", R"("actorder":"group")", "actorder"},
      {int4, R"("symmetric":true)", R"("actorder":true)", "actorder"},
      {int4, R"("input_activations":null)", R"("input_activations":)" + kInt8Token, "int8 a token"},
      {int4, "pack-quantized", "marlin-24", "marlin-24"},
      {int4, "pack-quantized", "nvfp4-pack-quantized", "nvfp4-pack-quantized"},
      {int4, R"("output_activations":null)", R"("output_activations":{})", "output_activations"},
      {int4, R"("x":0)", R"("sparsity_config":{"format":"sparse-24-bitmask"})", "sparsity_config"},
      {int4, R"("x":0)", R"("transform_config":{"config_groups":{}})", "transform_config"},
      {int4, R"("config_groups")", R"("groups")", "config_groups"},
  };
  for (const Case& c : cases) {
    const Error e = refused_quant(with(c.json, c.from, c.to));
    EXPECT_EQ(e.code, ErrorCode::unsupported_model) << c.to;
    EXPECT_THAT(e.message, HasSubstr(c.named)) << c.to;
    EXPECT_THAT(e.fix, HasSubstr("--quantization")) << c.to;
  }
  for (const std::string activations :
       {"null", R"({"num_bits":8,"type":"int","strategy":"tensor","dynamic":false})",
        R"({"num_bits":8,"type":"int","strategy":"token","symmetric":false,"dynamic":true})"})
    EXPECT_EQ(refused_quant(compressed("int-quantized", kInt8Channel, activations)).code,
              ErrorCode::unsupported_model);
  EXPECT_THAT(
      refused_quant(compressed("float-quantized", with(kFp8Channel, "true", "false"), kFp8Token))
          .message,
      HasSubstr("asymmetric"));
  for (const char* strategy : {"tensor", "block"})
    EXPECT_THAT(refused_quant(compressed("float-quantized", with(kFp8Channel, "channel", strategy),
                                         kFp8Token))
                    .message,
                HasSubstr(strategy));
}

TEST(QuantConfig, NonsenseIsBadConfig) {
  for (const std::string json :
       {"3", R"({"quant_method":7})", R"({"quant_method":"gptq","bits":"4","group_size":128})",
        R"({"quant_method":"gptq","bits":4})", R"({"quant_method":"awq","group_size":128})",
        R"({"quant_method":"awq","bits":4,"group_size":128,"modules_to_not_convert":"lm_head"})",
        R"({"quant_method":"compressed-tensors","config_groups":[]})",
        R"({"quant_method":"compressed-tensors","config_groups":{"a":{"weights":3}}})"}) {
    const Error e = refused_quant(json);
    EXPECT_EQ(e.code, ErrorCode::bad_config) << json;
    EXPECT_FALSE(e.message.empty());
  }
}

TEST(QuantConfig, PatternsThatCannotBeReadAreRefused) {
  for (const std::string& pattern :
       {std::string("re:("), std::string("re:[z-a]"), std::string(R"(re:(a)\\1)"),
        "re:" + std::string(1000, 'a'), "re:" + std::string(600, '('),
        std::string("re:(a{1000}){1000}"), std::string("re:a{88888888888888888888}")}) {
    const Error e = refused_quant(with(compressed("pack-quantized", kInt4Group, "null"),
                                       R"(["lm_head"])", "[\"" + pattern + "\"]"));
    EXPECT_EQ(e.code, ErrorCode::bad_config) << pattern;
    EXPECT_THAT(e.message, HasSubstr("re:")) << pattern;
  }
  std::string many = R"("re:a0")";
  for (int i = 1; i < 100; ++i) many += ",\"re:a" + std::to_string(i) + '"';
  EXPECT_THAT(
      refused_quant(with(compressed("pack-quantized", kInt4Group, "null"), R"("lm_head")", many))
          .message,
      HasSubstr("more than 64 patterns"));
}

// The list of a published 4-bit model whose attention stays in bf16.
TEST(IsQuantized, PatternsMatchFromTheBeginning) {
  const QuantConfig quant = {
      .layout = QuantLayout::packed,
      .group = 32,
      .skipped = {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                  R"(re:.*mlp\.(gate|up|gate_up|down)_proj.*)", "re:experts"}};
  EXPECT_FALSE(is_quantized(quant, "lm_head"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.3.self_attn.kv_b_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.9.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.9.mlp.experts.383.up_proj"));
  const QuantConfig not_experts = {.layout = QuantLayout::packed,
                                   .skipped = {"re:(?!.*experts.*)"}};
  EXPECT_TRUE(is_quantized(not_experts, "model.layers.9.mlp.experts.383.up_proj"));
  EXPECT_FALSE(is_quantized(not_experts, "model.layers.9.mlp.up_proj"));
}

TEST(IsQuantized, HostilePatternsTakeNoTime) {
  const QuantConfig quant = read(
      with(compressed("pack-quantized", kInt4Group, "null"), "lm_head", "re:(a+)+(a*)*(a|aa)+b$"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_quantized(quant, std::string(2000, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

}  // namespace
}  // namespace hocket
