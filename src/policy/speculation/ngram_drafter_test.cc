// Tests which earlier tokens are found, against a search that looks at all of them.
#include "policy/speculation/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hocket {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> ids(std::initializer_list<int> numbers) {
  std::vector<TokenId> out;
  for (const int number : numbers) out.push_back(TokenId{number});
  return out;
}

struct Drafted {
  std::vector<int> tokens;
  int kind = 0;
};

class NgramDrafterTest : public ::testing::Test {
 protected:
  Drafted draft(const std::vector<TokenId>& tokens, int most = 4) {
    std::vector<DraftTask> tasks = {{.seat = 0, .tokens = tokens, .max_drafts = most}};
    drafter_.draft(tasks);
    Drafted out{.kind = tasks[0].kind};
    for (const TokenId id : tasks[0].drafts) out.tokens.push_back(value(id));
    return out;
  }
  void begin(int max_len = 1000) { drafter_.begin(0, max_len); }

  NgramDrafter drafter_{2, 100'000};
};

TEST_F(NgramDrafterTest, ProposesTheTokensThatFollowedTheSameTwo) {
  begin();
  const Drafted drafted = draft(ids({9, 1, 2, 3, 4, 5, 6, 8, 1, 2}));
  EXPECT_THAT(drafted.tokens, ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(drafted.kind, 0);
}

TEST_F(NgramDrafterTest, OneEqualTokenIsNoMatch) {
  begin();
  EXPECT_THAT(draft(ids({1, 2, 3, 4, 2})).tokens, IsEmpty());
  EXPECT_THAT(draft(ids({1})).tokens, IsEmpty());
  EXPECT_THAT(draft({}).tokens, IsEmpty());
}

TEST_F(NgramDrafterTest, TheLongestMatchWinsAndAmongEqualsTheLatest) {
  begin();
  // "1 2 3" stands at the start, "2 3" later.
  EXPECT_THAT(draft(ids({1, 2, 3, 7, 2, 3, 8, 1, 2, 3}), 1).tokens, ElementsAre(7));
  begin();
  EXPECT_THAT(draft(ids({2, 3, 7, 5, 2, 3, 8, 6, 2, 3}), 1).tokens, ElementsAre(8));
}

TEST_F(NgramDrafterTest, KindsTellHowLongTheMatchIs) {
  const auto kind_of = [this](int len) {
    begin();
    std::vector<TokenId> tokens;
    for (int i = 0; i < len; ++i) tokens.push_back(TokenId{i});
    tokens.push_back(TokenId{100});
    tokens.push_back(TokenId{101});
    for (int i = 0; i < len; ++i) tokens.push_back(TokenId{i});
    return draft(tokens).kind;
  };
  EXPECT_EQ(kind_of(2), 0);
  EXPECT_EQ(kind_of(3), 1);
  EXPECT_EQ(kind_of(4), 2);
  EXPECT_EQ(kind_of(7), 2);
  EXPECT_EQ(kind_of(8), 3);
  EXPECT_EQ(kind_of(40), 3);
}

TEST_F(NgramDrafterTest, ALoopIsDraftedAtAnyLength) {
  begin();
  EXPECT_THAT(draft(ids({5, 6, 5, 6, 5}), 6).tokens, ElementsAre(6, 5, 6, 5, 6, 5));
}

TEST_F(NgramDrafterTest, TokensThatAreAppendedAreFoundToo) {
  begin();
  std::vector<TokenId> tokens = ids({1, 2, 3, 4});
  EXPECT_THAT(draft(tokens).tokens, IsEmpty());
  for (const int more : {1, 2}) tokens.push_back(TokenId{more});
  EXPECT_THAT(draft(tokens, 2).tokens, ElementsAre(3, 4));
}

TEST_F(NgramDrafterTest, ASeatThatIsTakenAgainKnowsNothingOfTheLastRequest) {
  begin();
  draft(ids({1, 2, 3, 4, 5, 1, 2}));
  drafter_.end(0);
  begin();
  EXPECT_THAT(draft(ids({8, 9, 1, 2})).tokens, IsEmpty());
}

TEST_F(NgramDrafterTest, TokensFartherBackThanTheSpanAreForgotten) {
  begin(100000);
  std::vector<TokenId> tokens = ids({1, 2, 3, 4});
  for (int i = 0; i < NgramDrafter::kSpan; ++i) tokens.push_back(TokenId{100 + i});
  for (const int more : {1, 2}) tokens.push_back(TokenId{more});
  EXPECT_THAT(draft(tokens).tokens, IsEmpty());
  for (const int more : {7, 9, 1, 2}) tokens.push_back(TokenId{more});
  EXPECT_THAT(draft(tokens, 1).tokens, ElementsAre(7));
  EXPECT_EQ(NgramDrafter::bytes_per_seat(100000), 98304U);
  EXPECT_EQ(NgramDrafter::bytes_per_seat(1 << 30), 98304U);
}

// Returns the longest match, the latest among equals, by looking at every position.
std::pair<int, int> longest_match(const std::vector<TokenId>& tokens) {
  const int last = static_cast<int>(tokens.size()) - 1;
  std::pair best{-1, 1};
  for (int end = last - 1; end >= 1; --end) {
    int len = 0;
    while (len < NgramDrafter::kMaxMatchLen && len <= end &&
           tokens[static_cast<size_t>(end - len)] == tokens[static_cast<size_t>(last - len)])
      ++len;
    if (len > best.second) best = {end, len};
  }
  return best;
}

TEST_F(NgramDrafterTest, FindsTheMatchThatAnExhaustiveSearchFinds) {
  std::mt19937 rng(7);
  int num_found = 0;
  for (int round = 0; round < 200; ++round) {
    begin();
    // 200 tokens of 30 have each pair about once in five rounds, so no chain is cut.
    std::vector<TokenId> tokens;
    for (int i = 0; i < 200; ++i) {
      tokens.push_back(TokenId{std::uniform_int_distribution(0, 29)(rng)});
      if (tokens.size() < 3) continue;
      const auto [end, len] = longest_match(tokens);
      const Drafted drafted = draft(tokens, 1);
      ASSERT_EQ(drafted.tokens.empty(), len < 2);
      if (len < 2) continue;
      ++num_found;
      ASSERT_EQ(drafted.tokens[0], value(tokens[static_cast<size_t>(end) + 1]));
    }
  }
  EXPECT_GT(num_found, 1000);
}

TEST(NgramDrafterSources, ComeBeforeAndBehindTheOwnText) {
  std::vector<TokenId> forced, continued;
  const auto give = [](const std::vector<TokenId>& from) {
    return [&from](int seat, std::span<TokenId> out) {
      EXPECT_EQ(seat, 1);
      const size_t num = std::min(from.size(), out.size());
      std::copy_n(from.begin(), num, out.begin());
      return num;
    };
  };
  NgramDrafter drafter(2, 1000, {.forced = give(forced), .continued = give(continued)});
  drafter.begin(1, 100);
  const auto draft = [&](const std::vector<TokenId>& tokens) {
    DraftTask task{.seat = 1, .tokens = tokens, .max_drafts = 3};
    drafter.draft(std::span(&task, 1));
    return std::pair(task.kind, std::vector<TokenId>(task.drafts.begin(), task.drafts.end()));
  };
  continued = ids({7, 8, 9, 10});
  EXPECT_EQ(draft(ids({1})), std::pair(NgramDrafter::kContinued, ids({7, 8, 9})));
  const auto loop = ids({1, 2, 3, 1, 2});
  EXPECT_EQ(draft(loop), std::pair(0, ids({3, 1, 2})));
  forced = ids({5});
  EXPECT_EQ(draft(loop), std::pair(NgramDrafter::kForced, ids({5})));
}

TEST(NgramDrafterPrediction, IsFollowedWhereItsMatchIsAsLong) {
  std::vector<TokenId> predicted;
  NgramDrafter drafter(1, 1000, {.forced = {}, .continued = {}, .predicted = [&](int /*seat*/) {
                                   return std::span<const TokenId>(predicted);
                                 }});
  const auto begin = [&] { drafter.begin(0, 100); };
  const auto draft = [&](const std::vector<TokenId>& tokens) {
    DraftTask task{.seat = 0, .tokens = tokens, .max_drafts = 2};
    drafter.draft(std::span(&task, 1));
    return std::pair(task.kind, std::vector<TokenId>(task.drafts.begin(), task.drafts.end()));
  };
  predicted = ids({1, 2, 3, 4, 1, 2, 5, 1, 2});
  begin();
  EXPECT_EQ(draft(ids({9, 1, 2})), std::pair(NgramDrafter::kPredicted, ids({3, 4})));
  // It continues behind the last match, and nothing follows the last "1 2".
  EXPECT_EQ(draft(ids({9, 1, 2, 8, 1, 2})), std::pair(NgramDrafter::kPredicted, ids({5, 1})));
  EXPECT_EQ(draft(ids({9, 1, 2, 8, 1, 2, 3})), std::pair(NgramDrafter::kPredicted, ids({4, 1})));
  // The own text has the longer match.
  begin();
  EXPECT_EQ(draft(ids({9, 8, 1, 2, 7, 6, 9, 8, 1, 2})), std::pair(2, ids({7, 6})));
  EXPECT_EQ(draft(ids({9, 8, 1, 2, 7, 6, 9, 8, 1, 2, 4})).second, ids({}));
}

// A step searches a part of a long text, so a match that is far away is found some steps later.
TEST(NgramDrafterPrediction, IsSearchedInParts) {
  std::vector<TokenId> predicted(static_cast<size_t>(NgramDrafter::kSearchedTokens) * 4,
                                 TokenId{7});
  predicted[predicted.size() - 4] = TokenId{1};
  predicted[predicted.size() - 3] = TokenId{2};
  predicted[predicted.size() - 2] = TokenId{3};
  NgramDrafter drafter(1, 1000, {.forced = {}, .continued = {}, .predicted = [&](int /*seat*/) {
                                   return std::span<const TokenId>(predicted);
                                 }});
  drafter.begin(0, 100);
  const std::vector<TokenId> tokens = ids({9, 1, 2});
  for (int step = 0; step < 4; ++step) {
    DraftTask task{.seat = 0, .tokens = tokens, .max_drafts = 1};
    drafter.draft(std::span(&task, 1));
    EXPECT_EQ(task.drafts.empty(), step < 3) << step;
  }
}

}  // namespace
}  // namespace hocket
