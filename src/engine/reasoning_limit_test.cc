#include "engine/reasoning_limit.h"

#include <gtest/gtest.h>

#include <vector>

namespace hocket {
namespace {

std::vector<TokenId> ids(std::initializer_list<int> values) {
  std::vector<TokenId> out;
  for (const int v : values) out.push_back(TokenId{v});
  return out;
}

// Plays an answer whose model writes `wanted`, and returns the tokens that come out.
std::vector<TokenId> played(const ReasoningLimit& limit, const std::vector<TokenId>& wanted) {
  std::vector<TokenId> answer;
  for (const TokenId token : wanted) {
    const TokenId forced = forced_reasoning_end(limit, {answer});
    // Passing the newest tokens apart must give the same.
    const std::span<const TokenId> all(answer);
    for (size_t old = 0; old <= all.size(); ++old)
      EXPECT_EQ(forced_reasoning_end(limit, {all.first(old), all.subspan(old)}), forced);
    answer.push_back(value(forced) >= 0 ? forced : token);
  }
  return answer;
}

TEST(ReasoningLimit, EndsThoughtsThatThePromptOpened) {
  const ReasoningLimit limit{.tokens = 3, .open = {}, .ends = {ids({8, 9})}};
  EXPECT_EQ(played(limit, ids({1, 2, 3, 4, 5, 6, 7})), ids({1, 2, 3, 8, 9, 6, 7}));
}

TEST(ReasoningLimit, LeavesThoughtsAloneThatEndInTime) {
  const ReasoningLimit limit{.tokens = 3, .open = {}, .ends = {ids({8, 9}), ids({5})}};
  for (const auto& answer :
       {ids({8, 9, 1, 2, 3, 4, 5}), ids({1, 8, 9, 2, 3, 4, 5}), ids({1, 2, 5, 3, 4, 6, 7})})
    EXPECT_EQ(played(limit, answer), answer);
  // An end that the model began before the limit is begun again at the limit.
  EXPECT_EQ(played(limit, ids({1, 2, 8, 9, 1, 1})), ids({1, 2, 8, 8, 9, 1}));
}

TEST(ReasoningLimit, CountsFromTheMarkThatOpensThem) {
  const ReasoningLimit limit{.tokens = 2, .open = ids({6, 7}), .ends = {ids({9})}};
  EXPECT_EQ(played(limit, ids({6, 7, 1, 2, 3, 4, 5})), ids({6, 7, 1, 2, 9, 4, 5}));
  EXPECT_EQ(played(limit, ids({0, 6, 7, 1, 2, 3, 4})), ids({0, 6, 7, 1, 2, 9, 4}));
  for (const auto& free : {ids({1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4}), ids({6, 1, 2, 3, 4, 5, 6})})
    EXPECT_EQ(played(limit, free), free);
}

TEST(ReasoningLimit, MayBeZero) {
  EXPECT_EQ(played({.tokens = 0, .open = {}, .ends = {ids({8, 9})}}, ids({1, 2, 3})),
            ids({8, 9, 3}));
  EXPECT_EQ(played({.tokens = 0, .open = ids({6}), .ends = {ids({9})}}, ids({6, 2, 3})),
            ids({6, 9, 3}));
}

}  // namespace
}  // namespace hocket
