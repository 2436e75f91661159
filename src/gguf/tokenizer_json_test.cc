#include "gguf/tokenizer_json.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "gguf/folder_testing.h"

namespace hocket {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class GgufTokenizerTest : public GgufFolderTest {
 protected:
  // Returns tokenizer.json of a byte-level vocabulary that names a pre-tokenizer.
  Json json_with(std::string_view pre) const {
    const auto file = opened(GgufText()
                                 .counts(0, 5)
                                 .text_value("tokenizer.ggml.model", "gpt2")
                                 .text_value("tokenizer.ggml.pre", pre)
                                 .texts_value("tokenizer.ggml.tokens", {"a", "<bos>"})
                                 .texts_value("tokenizer.ggml.merges", {})
                                 .u32_value("tokenizer.ggml.bos_token_id", 1));
    const auto json = gguf_tokenizer_json(*file);
    EXPECT_TRUE(json.has_value()) << json.error().message;
    return json ? Json::parse(*json) : Json();
  }
};

TEST_F(GgufTokenizerTest, PatternsOfDeepseekApplyOneAfterTheOther) {
  const auto patterns_of = [&](std::string_view pre) {
    std::vector<std::string> patterns;
    const Json json = json_with(pre);
    for (const Json& step : json["pre_tokenizer"]["pretokenizers"])
      if (step.contains("pattern")) patterns.push_back(step["pattern"]["Regex"]);
    return patterns;
  };
  EXPECT_THAT(patterns_of("deepseek-coder"),
              ElementsAre(R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-\ud7ff]+",
                          R"(\p{N})"));
  const auto llm = patterns_of("deepseek-llm");
  ASSERT_EQ(llm.size(), 6U);
  EXPECT_THAT(llm[1], StartsWith(R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳ)"));
  EXPECT_THAT(llm[1], EndsWith("𑢠-𑣟𞤀-𞥃]+"));
}

// The vocabulary of Llama 3 is known by a token of its own.
TEST_F(GgufTokenizerTest, OlderFilesThatNameNoPreTokenizerAreKnownByTheirVocabulary) {
  const auto json_and_note = [&](std::string_view begins, const char* pre) {
    constexpr size_t kBegins = 128000;
    std::vector<std::string> texts(kBegins + 1);
    for (size_t id = 0; id < kBegins; ++id) texts[id] = "t" + std::to_string(id);
    texts[kBegins] = begins;
    GgufText text;
    text.counts(0, pre == nullptr ? 3 : 4)
        .text_value("tokenizer.ggml.model", "gpt2")
        .texts_value("tokenizer.ggml.tokens", {texts.begin(), texts.end()})
        .texts_value("tokenizer.ggml.merges", {});
    if (pre != nullptr) text.text_value("tokenizer.ggml.pre", pre);
    const auto file = opened(text);
    const auto json = gguf_tokenizer_json(*file);
    std::string said =
        json ? Json::parse(*json)["model"]["ignore_merges"].dump() : json.error().message;
    for (const auto& [key, from, to, why] : gguf_tokenizer_assumptions(*file))
      said += " " + key + ": " + from + " -> " + to;
    return said;
  };
  EXPECT_EQ(json_and_note("<|begin_of_text|>", nullptr),
            "true tokenizer.ggml.pre: missing in the file -> llama-bpe");
  EXPECT_EQ(json_and_note("<|begin_of_text|>", "default"),
            "true tokenizer.ggml.pre: default -> llama-bpe");
  EXPECT_EQ(json_and_note("<|begin_of_text|>", "glm4"), "true");
  EXPECT_THAT(json_and_note("<s>", nullptr),
              HasSubstr("the pre-tokenizer \"default\" is not known"));
}

// Converters write some tokens of the folder that are control tokens as others.
TEST_F(GgufTokenizerTest, TokensThatEndAnswersAndMarksOfGemmaAreSpecial) {
  const auto file = opened(GgufText()
                               .counts(0, 4)
                               .text_value("tokenizer.ggml.model", "gemma4")
                               .texts_value("tokenizer.ggml.tokens",
                                            {"a", "<|im_end|>", "<|channel>", "<mine>", "[EOS]"})
                               .i32s_value("tokenizer.ggml.token_type", {1, 1, 4, 4, 1})
                               .texts_value("tokenizer.ggml.merges", {}));
  const auto json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.has_value()) << json.error().message;
  const Json root = Json::parse(*json);
  std::map<std::string, bool> special;
  for (const Json& token : root["added_tokens"]) special[token["content"]] = token["special"];
  EXPECT_EQ(special, (std::map<std::string, bool>{
                         {"<|im_end|>", true}, {"<|channel>", true}, {"<mine>", false}}));
  const auto assumed = gguf_tokenizer_assumptions(*file);
  ASSERT_EQ(assumed.size(), 1U);
  EXPECT_EQ(assumed[0].key, "tokenizer.ggml.token_type");
  EXPECT_EQ(assumed[0].from, "other kinds of 2 tokens");
}

TEST_F(GgufTokenizerTest, TextsOfGemmaBeginWithBosEvenIfTheFileDeniesIt) {
  const auto file = opened(GgufText()
                               .counts(0, 6)
                               .text_value("tokenizer.ggml.model", "gemma4")
                               .texts_value("tokenizer.ggml.tokens", {"a", "<bos>"})
                               .texts_value("tokenizer.ggml.merges", {})
                               .i32s_value("tokenizer.ggml.suppress_tokens", {0})
                               .u32_value("tokenizer.ggml.bos_token_id", 1)
                               .flag_value("tokenizer.ggml.add_bos_token", false));
  const auto json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_EQ(Json::parse(*json)["post_processor"]["single"][0]["SpecialToken"]["id"], "<bos>");
  const auto assumed = gguf_tokenizer_assumptions(*file);
  ASSERT_EQ(assumed.size(), 2U);
  EXPECT_EQ(assumed[0].key, "tokenizer.ggml.add_bos_token");
  EXPECT_EQ(assumed[0].to, "true");
  EXPECT_EQ(assumed[1].key, "tokenizer.ggml.suppress_tokens");
  EXPECT_EQ(assumed[1].from, "1 tokens");
}

}  // namespace
}  // namespace hocket
