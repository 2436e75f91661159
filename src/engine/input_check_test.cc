#include "engine/input_check.h"

#include <gtest/gtest.h>

#include "engine/messages.h"

namespace hocket {
namespace {

TEST(InputCheck, PromptLogprobsAreBounded) {
  EngineInfo info;
  info.model.vocab_size = 8;
  info.context_length = 1 << 21;
  info.max_total_tokens = 1 << 21;
  constexpr int kPositions = kMaxPromptLogprobs / (1 + kMaxTopLogprobs);
  RequestInput input;
  input.prompt.resize(kPositions + 1);
  input.sampling.max_new_tokens = 1;
  input.sampling.num_top_logprobs = kMaxTopLogprobs;
  EXPECT_TRUE(check_input(input, info)) << "none are asked for";
  input.sampling.prompt_logprobs_from = 1;
  EXPECT_TRUE(check_input(input, info));
  input.sampling.prompt_logprobs_from = 0;
  const Result<void> refused = check_input(input, info);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "logprobs");
  EXPECT_NE(refused.error().message.find("2097152 at most"), std::string::npos);
}

TEST(InputCheck, TokensOfImagesAreRefused) {
  EngineInfo info;
  info.model.vocab_size = 8;
  info.model.placeholder_ids = {TokenId{5}};
  info.context_length = info.max_total_tokens = 16;
  RequestInput input;
  input.sampling.max_new_tokens = 1;
  input.prompt = {TokenId{4}, TokenId{6}};
  EXPECT_TRUE(check_input(input, info));
  input.prompt[1] = TokenId{5};
  const Result<void> refused = check_input(input, info);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_NE(refused.error().message.find("token 5 stands for an image"), std::string::npos);
}

// They become rows, and the tokens that are added to a tokenizer may be beyond the embedding.
TEST(InputCheck, PredictedTokensAreInTheVocabulary) {
  EngineInfo info;
  info.model.vocab_size = 8;
  info.context_length = info.max_total_tokens = 16;
  RequestInput input;
  input.sampling.max_new_tokens = 1;
  input.prompt = {TokenId{4}};
  input.prediction = std::make_shared<const std::vector<TokenId>>(2, TokenId{7});
  EXPECT_TRUE(check_input(input, info));
  input.prediction = std::make_shared<const std::vector<TokenId>>(2, TokenId{8});
  const Result<void> refused = check_input(input, info);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "prediction");
}

}  // namespace
}  // namespace hocket
