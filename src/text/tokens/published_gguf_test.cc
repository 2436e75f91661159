// Tests that GGUF files whose pre-tokenizer is known by its name alone cut texts as the models'
// publishers do. The expectations are those of their own tokenizers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "gguf/folder_testing.h"
#include "text/tokens/tokenizer.h"

namespace hocket {
namespace {

constexpr int kE = 7, kAccent = 8, kAccentEnd = 9, kComposed = 10, kComposedEnd = 11;
constexpr int kX = 12, kY = 13, kXy = 14, kBos = 15;

// The token "1" is 0; its longer neighbours can be merged from it, but "xy" from nothing.
GgufText published(std::string_view pre) {
  std::vector<int32_t> kinds(16, 1);
  kinds[kBos] = 3;
  return GgufText()
      .counts(0, 6)
      .text_value("tokenizer.ggml.model", "gpt2")
      .text_value("tokenizer.ggml.pre", pre)
      .texts_value("tokenizer.ggml.tokens", {"1", "2", "3", "4", "12", "123", "1234", "e", "\u00cc",
                                             "\u0123", "\u00c3", "\u00a9", "x", "y", "xy", "<bos>"})
      .i32s_value("tokenizer.ggml.token_type", kinds)
      .texts_value("tokenizer.ggml.merges", {"1 2", "12 3", "123 4"})
      .u32_value("tokenizer.ggml.bos_token_id", kBos);
}

struct PublishedModel {
  const char* name;
  const char* pre;                       // as the converter of llama.cpp names it
  std::vector<int> digits;               // the tokens of 1234
  bool composes, takes_whole, adds_bos;  // NFC; a token that no merges make; at a text's begin
};

class PublishedGguf : public GgufFolderTest {};

TEST_F(PublishedGguf, TextsAreCutAsPublishersDo) {
  const std::vector<int> single = {0, 1, 2, 3}, threes = {5, 3}, all = {6};
  const PublishedModel models[] = {
      {"Llama-3.1-8B-Instruct", "llama-bpe", threes, false, true, true},
      {"Qwen3-30B-A3B", "qwen2", single, true, false, false},
      {"DeepSeek-V3", "deepseek-v3", threes, false, false, false},
      {"Mistral-Nemo-Instruct-2407", "tekken", single, false, true, true},
      {"Kimi-K2-Instruct", "kimi-k2", threes, false, true, false},
      {"SmolLM2-1.7B-Instruct", "smollm", single, false, false, false},
      {"GigaChat-20B-A3B-instruct", "gigachat", all, false, false, false},
  };
  for (const PublishedModel& model : models) {
    SCOPED_TRACE(model.name);
    const auto tokenizer = Tokenizer::load(write("model.gguf", published(model.pre)));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    const auto ids_of = [&](std::string_view text, bool with_bos = false) {
      const auto found = tokenizer->encode(text, {.add_special_tokens = with_bos});
      EXPECT_TRUE(found.has_value());
      std::vector<int> ids;
      for (const TokenId id : found.value()) ids.push_back(value(id));
      return ids;
    };
    using Ids = std::vector<int>;
    EXPECT_EQ(ids_of("1234"), model.digits);
    EXPECT_EQ(ids_of("e\u0301"),
              model.composes ? (Ids{kComposed, kComposedEnd}) : (Ids{kE, kAccent, kAccentEnd}));
    EXPECT_EQ(ids_of("xy"), model.takes_whole ? Ids{kXy} : (Ids{kX, kY}));
    EXPECT_EQ(ids_of("x", true), model.adds_bos ? (Ids{kBos, kX}) : Ids{kX});
  }
}

}  // namespace
}  // namespace hocket
