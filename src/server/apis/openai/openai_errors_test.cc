#include "server/apis/openai/openai_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hocket {
namespace {

using testing::HasSubstr;

TEST(OpenAiErrors, HaveOpenAisFields) {
  const auto body = nlohmann::json::parse(kOpenAiErrors.body(
      error(ErrorCode::context_length_exceeded, "prompt 900 + max_tokens 200 > 1024 \"\xff\"")
          .with_fix("max_tokens 124")
          .with_param("max_tokens")));
  const auto& e = body.at("error");
  EXPECT_EQ(e.at("type"), "invalid_request_error");
  EXPECT_EQ(e.at("code"), "context_length_exceeded");
  EXPECT_EQ(e.at("param"), "max_tokens");
  EXPECT_EQ(e.at("hint"), "max_tokens 124");
  EXPECT_THAT(e.at("message").get<std::string>(), HasSubstr("900 + max_tokens 200"));
  EXPECT_TRUE(
      nlohmann::json::parse(kOpenAiErrors.body(error(ErrorCode::internal, "x")))["error"]["param"]
          .is_null());
}

TEST(OpenAiErrors, QuoteLittleOfALongText) {
  const std::string long_word(1 << 20, 'x');
  const Error quoting = error(ErrorCode::template_failed, "it says {}", long_word);
  EXPECT_LE(kOpenAiErrors.body(quoting).size(), 4096u);
}

}  // namespace
}  // namespace hocket
