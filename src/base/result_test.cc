#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace hocket {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(ErrorCode::bad_value, "{} is odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  HOCKET_TRY(const int once, half(n));
  HOCKET_TRY(const int twice, half(once));
  return twice;
}

Result<void> must_be_even(int n) {
  HOCKET_TRY_VOID(half(n));
  return {};
}

TEST(Result, TryPassesTheValueOn) {
  EXPECT_EQ(quarter(12).value(), 3);
}

TEST(Result, TryReturnsTheFirstError) {
  const Result<int> result = quarter(6);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::bad_value);
  EXPECT_EQ(result.error().message, "3 is odd");
  EXPECT_TRUE(must_be_even(4));
  EXPECT_EQ(must_be_even(5).error().message, "5 is odd");
}

TEST(Result, TryMovesWhatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(9); };
  const auto use = [&]() -> Result<int> {
    HOCKET_TRY(std::unique_ptr<int> owned, make());
    return *owned;
  };
  EXPECT_EQ(use().value(), 9);
}

TEST(Error, IsDescribedWithCodeAndFix) {
  const Error e = error(ErrorCode::kv_does_not_fit, "the KV cache does not fit");
  EXPECT_EQ(describe(e), "error[HK041]: the KV cache does not fit");
  EXPECT_EQ(describe(Error(e).with_fix("--context-length 16384")),
            "error[HK041]: the KV cache does not fit\n  fix: --context-length 16384");
  EXPECT_EQ(Error(e).with_param("top_k").param, "top_k");
}

TEST(Error, CodeDecidesTheExitStatus) {
  EXPECT_EQ(exit_status(ErrorCode::usage), 2);
  EXPECT_EQ(exit_status(ErrorCode::unknown_isa), 2);
  EXPECT_EQ(exit_status(ErrorCode::model_not_found), 3);
  EXPECT_EQ(exit_status(ErrorCode::bad_template), 3);
  EXPECT_EQ(exit_status(ErrorCode::kv_does_not_fit), 4);
  EXPECT_EQ(exit_status(ErrorCode::lost_rank), 5);
  EXPECT_EQ(exit_status(ErrorCode::unauthorized), 5);
  EXPECT_EQ(exit_status(ErrorCode::watchdog), 6);
  EXPECT_EQ(exit_status(ErrorCode::port_in_use), 7);
  EXPECT_EQ(exit_status(ErrorCode::io), 1);
  EXPECT_EQ(exit_status(ErrorCode::internal), 1);
}

}  // namespace
}  // namespace hocket
