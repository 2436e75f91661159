#include "text/tokens/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "../rust/hocket_rs.h"
#include "base/source_dir_testing.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/files.h"

namespace hocket {
namespace {

const std::filesystem::path kGolden = source_dir() / "tests/golden/tokenizers";

Tokenizer load(const char* name) {
  auto t = Tokenizer::load(kGolden / name);
  EXPECT_TRUE(t.has_value()) << describe(t.error());
  return std::move(*t);
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer t = load("qwen2");
  EXPECT_EQ(t.vocab_size(), 512);
  EXPECT_EQ(t.eos_id(), TokenId{504});
  EXPECT_EQ(t.bos_id(), std::nullopt);
  EXPECT_TRUE(t.is_special(TokenId{504}));
  EXPECT_FALSE(t.is_special(TokenId{510}));  // <think>
  EXPECT_EQ(t.token_bytes(TokenId{510}), "<think>");
  EXPECT_EQ(t.token_bytes(TokenId{220}), " ");
  EXPECT_EQ(t.token_bytes(TokenId{127}), "\xC3");  // half of a character
  EXPECT_EQ(t.find("<think>"), TokenId{510});
  EXPECT_EQ(t.find("no such token"), std::nullopt);
  for (const int id : {-1, 512, 1 << 30}) {
    EXPECT_FALSE(t.is_known(TokenId{id}));
    EXPECT_EQ(t.token_bytes(TokenId{id}), "");
  }
  EXPECT_EQ(load("deepseek_v3").token_bytes(TokenId{794}), "<｜User｜>");
  EXPECT_EQ(load("llama3").named_tokens().front(),
            (std::pair<std::string, std::string>("bos_token", "<|begin_of_text|>")));
}

TEST(Tokenizer, RefusesBadFiles) {
  const std::string good = *read_file(kGolden / "qwen2/tokenizer.json", ErrorCode::io);
  for (const std::string& bad : {std::string(), std::string("{}"), std::string("nonsense"),
                                 good.substr(0, good.size() / 2)}) {
    const auto t = Tokenizer::from_json(bad, "");
    ASSERT_FALSE(t.has_value());
    EXPECT_EQ(t.error().code, ErrorCode::bad_tokenizer);
  }
  const auto config = Tokenizer::from_json(good, "[1]");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, ErrorCode::bad_tokenizer);
  const auto named =
      Tokenizer::from_json(good, R"({"bos_token": ")" + std::string(300, 'x') + R"("})");
  ASSERT_FALSE(named.has_value());
  EXPECT_THAT(named.error().message, ::testing::HasSubstr("bos_token has 300 bytes"));
  const auto missing = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::no_tokenizer);
}

TEST(Tokenizer, RefusesIdsThatNoTableHolds) {
  std::string json = *read_file(kGolden / "qwen2/tokenizer.json", ErrorCode::io);
  const auto at = json.find("\"id\":");
  ASSERT_NE(at, std::string::npos);
  json.insert(json.find_first_of("0123456789", at), "400000");
  const auto t = Tokenizer::from_json(json, "");
  ASSERT_FALSE(t.has_value());
  EXPECT_EQ(t.error().code, ErrorCode::bad_tokenizer);
  EXPECT_THAT(t.error().message, ::testing::HasSubstr("an added token has the id 400000"));
}

// The first is DeepSeek-V2's pattern, on which Oniguruma alone would take minutes; the second
// fails.
TEST(Tokenizer, PatternsHoldNoThread) {
  std::string json = *read_file(kGolden / "qwen2/tokenizer.json", ErrorCode::io);
  auto file = nlohmann::json::parse(json);
  const auto with = [&](const char* pattern) {
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    auto t = Tokenizer::from_json(file.dump(), "");
    EXPECT_TRUE(t.has_value()) << describe(t.error());
    return std::move(*t);
  };
  EXPECT_EQ(with("\\s+$").slow_pattern(), "");
  EXPECT_EQ(with("(a|a)*$").slow_pattern(), "(a|a)*$");
  EXPECT_TRUE(with("\\s+$").encode(std::string(250'000, ' ') + "1").has_value());
  const auto failed = with("(a|a)*$").encode(std::string(2'000, 'a') + "b");
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::invalid_request);
}

TEST(Tokenizer, RefusesInvalidUtf8) {
  const auto ids = load("qwen2").encode("ab\xFF");
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().code, ErrorCode::invalid_request);
  EXPECT_THAT(ids.error().message, ::testing::HasSubstr("byte 2 of 3"));
}

TEST(Tokenizer, TellsEarlyOfATextThatIsFarTooLong) {
  const Tokenizer t = load("qwen2");
  const auto refusal = [&](std::string_view text) {
    const auto fits = t.check_length(text, 4096);
    if (fits) return std::string();
    EXPECT_EQ(fits.error().code, ErrorCode::context_length_exceeded);
    return fits.error().message;
  };
  std::string words;
  while (words.size() < 150'000) words += "né 7 ";
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(std::string_view(words).substr(0, 4 * 4096)), "");
  EXPECT_THAT(refusal(words), ::testing::HasSubstr("tokens, and 4096 tokens have room"));
  EXPECT_THAT(refusal(std::string(32 * 4096 + 65537, ' ')),
              ::testing::HasSubstr("more than 32 for a token"));
  // The text has few tokens for its bytes, so only encode() finds whether it fits.
  std::string_view longest;
  for (int id = 0; id < t.vocab_size(); ++id)
    if (t.is_special(TokenId{id}) && t.token_bytes(TokenId{id}).size() > longest.size())
      longest = t.token_bytes(TokenId{id});
  std::string sparse;
  while (sparse.size() + longest.size() <= 100'000) sparse += longest;
  EXPECT_EQ(refusal(sparse), "");
}

TEST(Tokenizer, IgnoresTruncationAndPaddingOfTheFile) {
  std::string json = *read_file(kGolden / "qwen2/tokenizer.json", ErrorCode::io);
  const auto at = json.find("\"truncation\":");
  ASSERT_NE(at, std::string::npos);
  const auto end = json.find("null", at) + 4;
  json.replace(at, end - at,
               R"("truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                  "stride": 0})");
  const auto t = Tokenizer::from_json(json, "");
  ASSERT_TRUE(t.has_value()) << describe(t.error());
  EXPECT_EQ(*t->encode("a longer text than two"), *load("qwen2").encode("a longer text than two"));
}

TEST(Tokenizer, AddsBosThatOnlyTheConfigAsksFor) {
  const std::string json = *read_file(kGolden / "qwen2/tokenizer.json", ErrorCode::io);
  const auto t = Tokenizer::from_json(
      json, R"({"bos_token": {"content": "<|endoftext|>"}, "add_bos_token": true})");
  ASSERT_TRUE(t.has_value());
  EXPECT_EQ(t->encode("a")->front(), TokenId{502});
  EXPECT_EQ(t->encode("a")->size(), 2u);
  EXPECT_EQ(t->encode("a", {.add_special_tokens = false})->size(), 1u);
  EXPECT_EQ(t->encode("<|endoftext|>a")->size(), 2u);
}

// Marks at any place leave the tokens of ordinary text as they were.
TEST(Tokenizer, MarksVanish) {
  const Tokenizer t = load("llama3");
  const std::string mark = "\xF3\xB0\x80\x80";  // U+F0000
  const RenderedPrompt prompt{"<|eot_id|>12" + mark + "34 naïve <" + mark + "|eot_id|>", 0xF0000};
  EXPECT_EQ(prompt.text(), "<|eot_id|>1234 naïve <|eot_id|>");
  auto want = *t.encode("1234 naïve <|eot_id|>",
                        {.add_special_tokens = false, .parse_special_tokens = false});
  want.insert(want.begin(), *t.find("<|eot_id|>"));
  EXPECT_EQ(*t.encode(prompt), want);
}

Result<Tokenizer> sentencepiece() {
  return Tokenizer::from_json(R"({"version": "1.0", "added_tokens": [
      {"id": 0, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
       "rstrip": false, "normalized": false}],
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "vocab": {"</s>": 0, "▁Hi": 1, "▁there": 2, "<0xC3>": 3,
        "<0xA9>": 4}, "merges": [], "byte_fallback": true}})",
                              "");
}

// A vocabulary of SentencePiece spellings uses the library's decoder.
TEST(Detokenizer, StreamsVocabulariesThatAreNotByteLevel) {
  const auto t = sentencepiece();
  ASSERT_TRUE(t.has_value()) << describe(t.error());
  EXPECT_FALSE(t->byte_exact());
  EXPECT_EQ(t->token_bytes(TokenId{2}), " there");
  EXPECT_EQ(t->token_bytes(TokenId{3}), "\xC3");
  Detokenizer d(*t, SpecialTokens::skip);
  EXPECT_EQ(d.step(TokenId{1}), "Hi");
  EXPECT_EQ(d.step(TokenId{2}), " there");
  EXPECT_EQ(d.step(TokenId{3}), "");
  EXPECT_EQ(d.step(TokenId{4}), "é");
  EXPECT_EQ(d.step(TokenId{0}), "");
  EXPECT_EQ(d.step(TokenId{3}), "");
  EXPECT_EQ(d.flush(), "\xEF\xBF\xBD");
}

// Neither skipped tokens nor bytes that make no character are kept for ever, or they would be
// decoded again with each token that follows.
TEST(Detokenizer, WhatHasNoTextIsForgotten) {
  const auto t = sentencepiece();
  ASSERT_TRUE(t.has_value()) << describe(t.error());
  constexpr int kMany = 6'000;
  for (const int before : {0, 1}) {
    Detokenizer d(*t, SpecialTokens::skip);
    std::vector<TokenId> ids;
    std::string text;
    const auto step = [&](int id) {
      ids.push_back(TokenId{id});
      text += d.step(ids.back());
    };
    if (before > 0) step(1);
    for (int i = 0; i < kMany; ++i) step(0);
    step(2);
    for (int i = 0; i < kMany; ++i) step(4);
    step(2);
    text += d.flush();
    EXPECT_TRUE(text == *t->decode(ids, SpecialTokens::skip));
  }
}

// For any ids, in or out of the vocabulary, the pieces join to the library's decoded text.
TEST(Detokenizer, PiecesJoinToTheDecodedText) {
  for (const char* name : {"qwen2", "llama3", "deepseek_v3"}) {
    const Tokenizer t = load(name);
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids(random() % 24);
      for (TokenId& id : ids) id = TokenId{static_cast<int>(random() % (t.vocab_size() + 20))};
      for (const auto special : {SpecialTokens::keep, SpecialTokens::skip}) {
        Detokenizer d(t, special);
        std::string joined;
        for (const TokenId id : ids) joined += d.step(id);
        joined += d.flush();
        EXPECT_EQ(joined, *t.decode(ids, special)) << name << " round " << round;
      }
    }
  }
}

TEST(Rust, PanicsStayInside) {
  EXPECT_EQ(hk_test_panic(2), 0);
  EXPECT_EQ(hk_test_panic(7), -2);
  char sentence[200];
  hk_last_error(sentence, sizeof sentence);
  EXPECT_THAT(sentence, ::testing::HasSubstr("index is 7"));
}

}  // namespace
}  // namespace hocket
