// Merges that files do not list follow from scores, or from the order of tokens.
#include "gguf/merges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hocket {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Tokens = std::vector<std::string_view>;

TEST(Merges, HighestScoresComeFirstThenLongFirstParts) {
  const Tokens tokens = {"a", "b", "c", "abc", "ab", "bc", "", "zz"};
  const std::vector<double> scores = {0, 0, 0, -3, -1, -2, 5, 9};
  EXPECT_THAT(merges_by_score(tokens, scores, 4),
              ::testing::Optional(
                  ElementsAre(Pair("a", "b"), Pair("b", "c"), Pair("ab", "c"), Pair("a", "bc"))));
}

TEST(Merges, CutsLieBetweenCharacters) {
  const Tokens tokens = {"\xC3", "\xA9", "é", "▁", "▁é"};
  EXPECT_THAT(merges_by_score(tokens, std::vector<double>(5, 0), 1),
              ::testing::Optional(ElementsAre(Pair("▁", "é"))));
  EXPECT_THAT(merges_by_order(tokens), ::testing::Optional(ElementsAre(Pair("▁", "é"))));
}

// "abcd" is merged by way of "bc", which is earlier than "ab" and "cd".
TEST(Merges, TokensInOrderHaveTheirLastMerge) {
  const Tokens tokens = {"a", "b", "c", "d", "bc", "ab", "cd", "abc", "abcd", "dd", "adda"};
  EXPECT_THAT(merges_by_order(tokens),
              ::testing::Optional(ElementsAre(Pair("b", "c"), Pair("a", "b"), Pair("c", "d"),
                                              Pair("a", "bc"), Pair("abc", "d"), Pair("d", "d"))));
}

TEST(Merges, TokensThatAreTooLongAreRefused) {
  const std::string longest(1 << 14, 'a');
  EXPECT_THAT(*merges_by_order(Tokens{"a", longest}), IsEmpty());
  const Tokens many(9, longest);
  EXPECT_FALSE(merges_by_order(many).has_value());
  EXPECT_FALSE(merges_by_score(many, std::vector<double>(9, 0), 100).has_value());
}

// Every cut of these tokens is a merge, so their number grows with the square of that of tokens.
TEST(Merges, MoreMergesThanTheLimitAreRefused) {
  constexpr size_t kTokens = 100, kCuts = kTokens * (kTokens - 1) / 2;
  const std::string longest(kTokens, 'a');
  Tokens tokens;
  for (size_t len = 1; len <= kTokens; ++len)
    tokens.push_back(std::string_view(longest).substr(0, len));
  const std::vector<double> scores(kTokens, 0);
  const auto all = merges_by_score(tokens, scores, kCuts);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->size(), kCuts);
  EXPECT_FALSE(merges_by_score(tokens, scores, kCuts - 1).has_value());
  EXPECT_FALSE(merges_by_score(tokens, scores, 0).has_value());
}

}  // namespace
}  // namespace hocket
