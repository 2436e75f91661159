#include "base/check.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(CheckDeathTest, PrintsTheConditionAndBothValues) {
  const int used = 7, limit = 5;
  EXPECT_DEATH(HOCKET_CHECK(used <= limit), "CHECK failed: used <= limit \\(7 vs 5\\)");
}

TEST(CheckDeathTest, PrintsEnumsAndNullPointers) {
  enum class Colour : int { red = 3, blue = 4 };
  const Colour colour = Colour::red;
  EXPECT_DEATH(HOCKET_CHECK(colour == Colour::blue), "\\(3 vs 4\\)");
  const int* nowhere = nullptr;
  EXPECT_DEATH(HOCKET_CHECK(nowhere != nullptr), "vs nullptr");
}

TEST(CheckDeathTest, PrintsAPlainCondition) {
  const bool ready = false;
  EXPECT_DEATH(HOCKET_CHECK(ready), "check_test.cc:[0-9]+: CHECK failed: ready");
}

TEST(Check, EvaluatesItsSidesOnce) {
  int calls = 0;
  const auto next = [&] { return ++calls; };
  HOCKET_CHECK(next() == 1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace hocket
