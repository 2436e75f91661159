// Runs all Hugging Face reference cases: tokenizers, chat templates, the bundled model's prompts.
#include "base/source_dir_testing.h"
#include "text/tokens/golden_cases.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/tokens/chat_template.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/files.h"

namespace hocket {
namespace {

const std::filesystem::path kRoot = source_dir();
const std::filesystem::path kOtherKinds = kRoot / "tests/golden/gguf_tokenizers";

void expect_all(const Result<std::vector<GoldenLine>>& lines, int min_cases) {
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  int cases = 0;
  for (const GoldenLine& line : *lines) {
    EXPECT_EQ(line.failed, 0) << line.name << ": " << line.first_failure;
    std::printf("%-36s %4d cases\n", line.name.c_str(), line.cases);
    cases += line.cases;
  }
  EXPECT_GE(cases, min_cases);
}

TEST(Golden, Tokenizers) {
  // There are three tokenizers, with 124 texts and 54 id lists each.
  expect_all(check_tokenizer_golden(kRoot / "tests/golden/tokenizers"), 3 * (124 * 7 + 54 * 8));
}

// A GGUF file holds the tokenizer of the folder that it was made from.
TEST(Golden, TokenizersInGguf) {
  const std::pair<const char*, const char*> files[] = {
      {"gguf_llama", "llama3"}, {"gguf_qwen3moe", "qwen2"}, {"gguf_deepseek2", "deepseek_v3"}};
  for (const auto& [file, folder] : files) {
    const auto tokenizer = Tokenizer::load(kRoot / "tests/golden" / file / "model.gguf");
    ASSERT_TRUE(tokenizer.has_value()) << describe(tokenizer.error());
    expect_all(check_tokenizer(*tokenizer, kRoot / "tests/golden/tokenizers" / folder),
               124 * 7 + 54 * 8);
    const auto own = Tokenizer::load(kRoot / "tests/golden/tokenizers" / folder);
    ASSERT_TRUE(own.has_value()) << describe(own.error());
    for (int32_t id = 0; id < own->vocab_size(); ++id) {
      EXPECT_EQ(tokenizer->token_bytes(TokenId{id}), own->token_bytes(TokenId{id})) << id;
      EXPECT_EQ(tokenizer->is_special(TokenId{id}), own->is_special(TokenId{id})) << id;
    }
    EXPECT_EQ(tokenizer->bos_id(), own->bos_id());
    EXPECT_EQ(tokenizer->eos_id(), own->eos_id());
  }
}

// SentencePiece cannot tell U+2581 from a space.
std::string with_spaces(std::string text) {
  const std::string mark = "\u2581";
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at)
    text.replace(at, mark.size(), " ");
  return text;
}

// Programs of the publishers gave the ids: sentencepiece, tokenizers and tiktoken.
TEST(Golden, TokenizersOfOtherKindsInGguf) {
  for (const std::string name : {"sentencepiece", "gemma4", "kimi_k2"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(kOtherKinds / (name + ".gguf"));
    ASSERT_TRUE(tokenizer.has_value()) << describe(tokenizer.error());
    const auto json = read_file(kOtherKinds / (name + ".json"), ErrorCode::io);
    ASSERT_TRUE(json.has_value());
    const auto cases = nlohmann::json::parse(*json);
    EXPECT_EQ(cases.size(), 260U);
    for (const auto& c : cases) {
      const std::string text = c["text"];
      const auto ids =
          tokenizer->encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
      ASSERT_TRUE(ids.has_value()) << describe(ids.error());
      std::vector<int> got;
      for (const TokenId id : *ids) got.push_back(value(id));
      EXPECT_EQ(got, c["ids"].get<std::vector<int>>()) << text;
      const auto decoded = tokenizer->decode(*ids, SpecialTokens::keep);
      EXPECT_EQ(decoded.value_or("none"), name == "kimi_k2" ? text : with_spaces(text));
    }
  }
}

TEST(Golden, TokenizersOfSentencePieceInGgufAreThoseOfTheirFolders) {
  for (const std::string name : {"sentencepiece", "gemma4"}) {
    SCOPED_TRACE(name);
    const auto got = Tokenizer::load(kOtherKinds / (name + ".gguf"));
    ASSERT_TRUE(got.has_value()) << describe(got.error());
    const auto want = Tokenizer::load(kOtherKinds / name);
    ASSERT_TRUE(want.has_value()) << describe(want.error());
    ASSERT_EQ(got->vocab_size(), want->vocab_size());
    for (int32_t id = 0; id < want->vocab_size(); ++id) {
      EXPECT_EQ(got->token_bytes(TokenId{id}), want->token_bytes(TokenId{id})) << id;
      EXPECT_EQ(got->is_special(TokenId{id}), want->is_special(TokenId{id})) << id;
    }
    const auto cases =
        nlohmann::json::parse(*read_file(kOtherKinds / (name + ".json"), ErrorCode::io));
    for (const auto& c : cases)
      for (const bool parse : {false, true}) {
        const std::string text = "a<s>" + c["text"].get<std::string>() + "<|mark|> b </s>";
        const auto options =
            EncodeOptions{.add_special_tokens = false, .parse_special_tokens = parse};
        EXPECT_EQ(got->encode(text, options).value(), want->encode(text, options).value()) << text;
      }
  }
}

TEST(Golden, ChatTemplates) {
  expect_all(check_chat_golden(kRoot / "tests/golden/chat"), 80);
}

TEST(Golden, BundledModel) {
  const auto dir = kRoot / "models/hocket-tiny-qwen3-moe";
  const auto tokenizer = Tokenizer::load(dir);
  ASSERT_TRUE(tokenizer.has_value()) << describe(tokenizer.error());
  const auto chat = ChatTemplate::load(dir, *tokenizer);
  ASSERT_TRUE(chat.has_value() && chat->has_value());
  const auto text = read_file(dir / "expected.json", ErrorCode::io);
  ASSERT_TRUE(text.has_value());
  const auto expected = nlohmann::ordered_json::parse(*text);
  int chats = 0;
  for (const auto& c : expected["completions"]) {
    Result<std::vector<TokenId>> ids;
    if (c["kind"] == "chat") {
      ++chats;
      ChatInput input;
      input.messages = c["messages"];
      if (c.contains("tools")) input.tools = c["tools"];
      if (c.contains("enable_thinking")) input.kwargs["enable_thinking"] = c["enable_thinking"];
      const auto prompt = (*chat)->render(input);
      ASSERT_TRUE(prompt.has_value()) << describe(prompt.error());
      EXPECT_EQ(prompt->text(), c["rendered"].get<std::string>());
      ids = tokenizer->encode(*prompt);
    } else {
      ids = tokenizer->encode(c["prompt"].get<std::string>());
    }
    ASSERT_TRUE(ids.has_value());
    std::vector<int> got;
    for (const TokenId id : *ids) got.push_back(value(id));
    EXPECT_EQ(got, c["prompt_token_ids"].get<std::vector<int>>());

    Detokenizer detokenizer(*tokenizer, SpecialTokens::skip);
    std::string answer;
    for (const int id : c["completion_token_ids"]) answer += detokenizer.step(TokenId{id});
    answer += detokenizer.flush();
    EXPECT_EQ(answer, c["text"].get<std::string>());
  }
  EXPECT_GT(chats, 5);
}

}  // namespace
}  // namespace hocket
