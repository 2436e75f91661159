#include "gguf/config.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "gguf/folder_testing.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Numbers = std::vector<std::pair<const char*, uint32_t>>;

class GgufConfigTest : public GgufFolderTest {
 protected:
  struct Read {
    Json config;
    std::string assumed;  // "key: to, because why" of each
    std::string error;
  };
  // Reads a file with these numbers under the architecture's name, and an embedding of `vocab`
  // rows.
  Read read(std::string_view architecture, const Numbers& numbers, int64_t vocab = 8) const {
    GgufText text;
    text.counts(1, 1 + numbers.size()).text_value("general.architecture", architecture);
    for (const auto& [key, value] : numbers)
      text.u32_value(std::string(architecture) + "." + key, value);
    return read(text.tensor("token_embd.weight", {8, vocab}, 0, 0));
  }
  Read read(const GgufText& text) const {
    const auto file = opened(text, GgufExtent::header);
    Read out;
    const auto config = gguf_config_json(*file);
    if (!config) return {.config = {}, .assumed = {}, .error = config.error().message};
    out.config = Json::parse(*config);
    for (const GgufAssumption& assumed : gguf_config_assumptions(*file))
      out.assumed += assumed.key + ": " + assumed.to + ", because " + assumed.why;
    return out;
  }
};

Numbers deepseek(uint32_t experts, uint32_t layers, uint32_t gating) {
  return {{"block_count", layers},
          {"expert_count", experts},
          {"expert_gating_func", gating},
          {"expert_used_count", 8},
          {"expert_feed_forward_length", 8},
          {"embedding_length", 8},
          {"context_length", 8},
          {"attention.head_count", 8},
          {"attention.key_length", 12},
          {"attention.value_length", 8},
          {"attention.kv_lora_rank", 8},
          {"rope.dimension_count", 4}};
}

TEST_F(GgufConfigTest, GroupsOfExpertsThatOlderFilesLackAreThoseOfTheModel) {
  constexpr uint32_t kSoftmax = 1, kSigmoid = 2;
  const auto v3 = read("deepseek2", deepseek(256, 61, kSigmoid), 129280);
  EXPECT_EQ(v3.config["n_group"], 8) << v3.error;
  EXPECT_EQ(v3.config["topk_group"], 4);
  EXPECT_THAT(v3.assumed, HasSubstr("deepseek2.expert_group_count: 8 groups, of which 4 are "
                                    "searched, because experts, layers and vocabulary are those "
                                    "of DeepSeek-V3"));
  const auto v2 = read("deepseek2", deepseek(160, 60, kSoftmax), 102400);
  EXPECT_EQ(v2.config["n_group"], 8) << v2.error;
  EXPECT_EQ(v2.config["topk_group"], 3);
  EXPECT_EQ(v2.config["topk_method"], "group_limited_greedy");
  for (const uint32_t experts : {64u, 384u}) {
    const auto other = read("deepseek2", deepseek(experts, 61, kSigmoid), 129280);
    EXPECT_EQ(other.config["n_group"], 1) << other.error;
    EXPECT_EQ(other.assumed, "");
  }
  const auto unknown = read("deepseek2", deepseek(162, 61, kSigmoid), 129280);
  EXPECT_EQ(unknown.config["n_group"], 1) << unknown.error;
  EXPECT_THAT(unknown.assumed, HasSubstr("no model with 162 experts in 61 layers is known"));
}

TEST_F(GgufConfigTest, GroupsOfExpertsThatTheFileHoldsAreTaken) {
  Numbers numbers = deepseek(256, 61, 2);
  numbers.emplace_back("expert_group_count", 4);
  numbers.emplace_back("expert_group_used_count", 2);
  const auto file = read("deepseek2", numbers, 129280);
  EXPECT_EQ(file.config["n_group"], 4) << file.error;
  EXPECT_EQ(file.config["topk_group"], 2);
  EXPECT_EQ(file.assumed, "");
}

TEST_F(GgufConfigTest, ValuesOfMimoFlashAreScaledWhereItsFileDoesNotSaySo) {
  const auto text = [](std::optional<float> scale, uint32_t experts, int64_t vocab) {
    constexpr uint32_t kLayers = 48;
    std::vector<int32_t> sliding(kLayers, 1), heads(kLayers, 4);
    sliding[0] = 0, heads[0] = 2;
    GgufText file;
    file.counts(1, scale ? 15 : 14).text_value("general.architecture", "mimo2");
    for (const char* key :
         {"embedding_length", "attention.head_count", "context_length", "attention.key_length",
          "attention.value_length", "attention.sliding_window", "rope.dimension_count",
          "expert_used_count", "expert_feed_forward_length"})
      file.u32_value(std::string("mimo2.") + key, 8);
    file.u32_value("mimo2.expert_count", experts)
        .u32_value("mimo2.block_count", kLayers)
        .i32s_value("mimo2.attention.sliding_window_pattern", sliding)
        .i32s_value("mimo2.attention.head_count_kv", heads);
    if (scale) file.f32_value("mimo2.attention.value_scale", *scale);
    return file.tensor("token_embd.weight", {8, vocab}, 0, 0);
  };
  constexpr int64_t kVocab = 152576;
  const auto flash = read(text(std::nullopt, 256, kVocab));
  EXPECT_EQ(flash.config["attention_value_scale"], 0.707) << flash.error;
  EXPECT_THAT(flash.assumed, HasSubstr("mimo2.attention.value_scale: 0.707"));
  for (const auto& other : {text(std::nullopt, 8, kVocab), text(std::nullopt, 256, 4)}) {
    const auto found = read(other);
    EXPECT_EQ(found.config["attention_value_scale"], 1) << found.error;
    EXPECT_THAT(found.assumed, HasSubstr("mimo2.attention.value_scale: 1, because"));
  }
  for (const float scale : {0.0f, 1.0f}) {
    const auto unscaled = read(text(scale, 256, kVocab));
    EXPECT_EQ(unscaled.config["attention_value_scale"], 1) << unscaled.error;
    EXPECT_EQ(unscaled.assumed, "");
  }
}

struct RopeText {
  const char* kind = nullptr;  // rope.scaling.type
  std::vector<std::pair<const char*, float>> numbers;
  bool divides = false;  // has rope_freqs.weight
};

GgufText llama(const RopeText& rope) {
  GgufText text;
  text.counts(rope.divides ? 2 : 1, 5 + (rope.kind != nullptr ? 1 : 0) + rope.numbers.size())
      .text_value("general.architecture", "llama");
  for (const char* key :
       {"embedding_length", "block_count", "attention.head_count", "context_length"})
    text.u32_value(std::string("llama.") + key, 8);
  if (rope.kind != nullptr) text.text_value("llama.rope.scaling.type", rope.kind);
  for (const auto& [key, value] : rope.numbers)
    text.f32_value(std::string("llama.rope.") + key, value);
  text.tensor("token_embd.weight", {8, 8}, 0, 0);
  if (rope.divides) text.tensor("rope_freqs.weight", {4}, 0, 256);
  return text;
}

TEST_F(GgufConfigTest, FactorsOfRopeAreRead) {
  const auto yarn =
      read(llama({"yarn", {{"scaling.factor", 4}, {"scaling.yarn_attn_factor", 1.25}}}));
  EXPECT_EQ(yarn.config["rope_scaling"]["attention_factor"], 1.25) << yarn.error;
  // Written by llama.cpp itself, where -1 stands for numbers that nobody set.
  const auto unset = read(llama(
      {"yarn",
       {{"scaling.factor", 4}, {"scaling.yarn_attn_factor", 1}, {"scaling.yarn_ext_factor", -1}}}));
  EXPECT_FALSE(unset.config["rope_scaling"].contains("attention_factor")) << unset.error;
  for (const char* key : {"scale_linear", "scaling.factor"}) {
    const auto old = read(llama({nullptr, {{key, 8}}}));
    EXPECT_EQ(old.config["rope_scaling"], (Json{{"rope_type", "linear"}, {"factor", 8.0}}));
    EXPECT_THAT(old.assumed, HasSubstr("llama.rope.scaling.type: linear"));
  }
  EXPECT_FALSE(read(llama({"none", {{"scaling.factor", 8}}})).config.contains("rope_scaling"));
  EXPECT_FALSE(read(llama({"linear", {}, true})).config.contains("rope_scaling"));
}

TEST_F(GgufConfigTest, FactorsOfRopeThatWouldBeIgnoredAreRefused) {
  const auto error = [&](const RopeText& rope) { return read(llama(rope)).error; };
  EXPECT_THAT(error({"yarn", {{"scaling.factor", 4}, {"scaling.yarn_ext_factor", 0.5}}}),
              HasSubstr("yarn_ext_factor 0.5 is not supported"));
  EXPECT_THAT(error({nullptr, {{"scaling.attn_factor", 1.5}}}),
              HasSubstr("attn_factor 1.5 is not supported"));
  EXPECT_THAT(error({"linear", {{"scaling.factor", 4}}, true}),
              HasSubstr("linear beside rope_freqs.weight is not supported"));
}

// Folders of these architectures mean YaRN where they leave its keys out.
TEST_F(GgufConfigTest, FilesThatDoNotScaleRopeSaySo) {
  const Json none = {{"rope_type", "default"}};
  const auto mistral = read("mistral4", deepseek(8, 2, 1));
  EXPECT_EQ(mistral.config["rope_scaling"], none) << mistral.error;
  EXPECT_EQ(mistral.assumed, "");
  const auto gpt_oss = read("gpt-oss", {{"block_count", 2},
                                        {"embedding_length", 8},
                                        {"context_length", 8},
                                        {"attention.head_count", 2},
                                        {"attention.sliding_window", 8},
                                        {"expert_count", 8},
                                        {"expert_used_count", 2},
                                        {"expert_feed_forward_length", 8}});
  EXPECT_EQ(gpt_oss.config["rope_scaling"], none) << gpt_oss.error;
}

TEST_F(GgufConfigTest, NumbersThatDifferAmongLayersAreRefusedAsSuch) {
  GgufText text;
  text.counts(1, 10).text_value("general.architecture", "qwen3moe");
  for (const char* key : {"embedding_length", "block_count", "attention.head_count",
                          "context_length", "attention.key_length", "attention.value_length",
                          "expert_count", "expert_feed_forward_length"})
    text.u32_value(std::string("qwen3moe.") + key, 2);
  text.i32s_value("qwen3moe.expert_used_count", {8, 6}).tensor("token_embd.weight", {8, 8}, 0, 0);
  EXPECT_THAT(read(text).error, HasSubstr("qwen3moe.expert_used_count differs among layers"));
}

TEST_F(GgufConfigTest, DeepseekWithoutExpertsIsRefusedByName) {
  Numbers numbers = deepseek(64, 4, 2);
  std::erase_if(numbers,
                [](const auto& entry) { return std::string(entry.first) == "expert_count"; });
  EXPECT_THAT(read("deepseek2", numbers).error, HasSubstr("deepseek2 without experts"));
}

TEST_F(GgufConfigTest, TokensBeyondTheEmbeddingAreNoTokens) {
  GgufText text;
  text.counts(1, 8).text_value("general.architecture", "llama");
  for (const char* key :
       {"embedding_length", "block_count", "attention.head_count", "context_length"})
    text.u32_value(std::string("llama.") + key, 8);
  text.u32_value("tokenizer.ggml.bos_token_id", UINT32_MAX)
      .u32_value("tokenizer.ggml.eos_token_id", 8)
      .u32_value("tokenizer.ggml.eot_token_id", 7)
      .tensor("token_embd.weight", {8, 8}, 0, 0);
  const auto file = read(text);
  EXPECT_FALSE(file.config.contains("bos_token_id")) << file.error;
  EXPECT_EQ(file.config["eos_token_id"], Json::array({7}));
  EXPECT_THAT(file.assumed,
              HasSubstr("tokenizer.ggml.eos_token_id: none, because the embedding has "
                        "8 rows"));
}

TEST_F(GgufConfigTest, EndsThatTheFileDoesNotNameAreReported) {
  const auto assumed = [&](uint32_t eos) {
    GgufText text;
    text.counts(1, 7).text_value("general.architecture", "llama");
    for (const char* key :
         {"embedding_length", "block_count", "attention.head_count", "context_length"})
      text.u32_value(std::string("llama.") + key, 8);
    text.u32_value("tokenizer.ggml.eos_token_id", eos)
        .texts_value("tokenizer.ggml.tokens", {"a", "<|eot_id|>", "b"})
        .tensor("token_embd.weight", {8, 8}, 0, 0);
    return read(text).assumed;
  };
  EXPECT_EQ(assumed(1), "");
  EXPECT_EQ(assumed(2),
            "tokenizer.ggml.eos_token_id: 1, 2, because the texts of these tokens end answers, "
            "too");
}

TEST_F(GgufConfigTest, LinearLayersAreThoseThatTheFileListsOrEachButTheFourth) {
  const auto kinds = [&](const std::vector<bool>& linear, const std::vector<int32_t>& heads) {
    GgufText text;
    text.counts(1, 13 + (linear.empty() ? 0 : 1)).text_value("general.architecture", "qwen35");
    for (const char* key :
         {"embedding_length", "attention.head_count", "context_length", "attention.key_length",
          "feed_forward_length", "ssm.time_step_rank", "ssm.group_count", "ssm.state_size",
          "ssm.inner_size", "ssm.conv_kernel"})
      text.u32_value(std::string("qwen35.") + key, 8);
    text.u32_value("qwen35.block_count", 5);
    if (heads.size() == 1) text.u32_value("qwen35.attention.head_count_kv", 2);
    if (heads.size() != 1) text.i32s_value("qwen35.attention.head_count_kv", heads);
    if (!linear.empty()) text.flags_value("qwen35.attention.recurrent_layers", linear);
    const auto file = read(text.tensor("token_embd.weight", {8, 8}, 0, 0));
    if (!file.error.empty()) return file.error;
    std::string all;
    for (const Json& kind : file.config["layer_types"]) all += kind.get<std::string>().front();
    return all;
  };
  EXPECT_EQ(kinds({}, {2}), "lllfl");
  EXPECT_EQ(kinds({}, {0, 2, 0, 0, 2}), "lfllf");
  EXPECT_EQ(kinds({}, {2, 2, 2, 2, 2}), "lllfl") << "heads alone make no layer full";
  EXPECT_THAT(kinds({}, {0, 2}), HasSubstr("2 numbers qwen35.attention.head_count_kv for 5"));
  EXPECT_EQ(kinds({true, false, true, false, false}, {2}), "lflff");
  EXPECT_EQ(kinds({true, false, true, false, false}, {0, 2, 0, 2, 2}), "lflff");
  EXPECT_THAT(kinds({true, false}, {2}),
              HasSubstr("2 numbers qwen35.attention.recurrent_layers for 5"));
}

}  // namespace
}  // namespace hocket
