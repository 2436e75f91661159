#include "policy/scheduler/absorbed_rows.h"

#include <gtest/gtest.h>

#include <iterator>
#include <utility>

#include "policy/scheduler/request.h"

namespace hocket {
namespace {

constexpr TokenId kOpens{1}, kCloses{2}, kWord{9};

std::vector<TokenId> plain(int count) {
  return std::vector<TokenId>(static_cast<size_t>(count), kWord);
}

TEST(AbsorbedRows, AreThoseOfAnAnswerAndSomeBehindIt) {
  std::vector<TokenId> tokens = plain(10);
  const auto add = [&](TokenId mark, int count) {
    tokens.push_back(mark);
    std::ranges::copy(plain(count), std::back_inserter(tokens));
  };
  add(kCloses, 9);                       // 10: ends nothing
  add(kOpens, 4);                        // 20: opens an answer
  add(kCloses, kRowsFromAnswerEnd + 3);  // 25: ends it
  add(kOpens, 400);                      // 285
  const TokenId begins[] = {kOpens}, ends[] = {kCloses};
  AbsorbedRows rows(begins, ends);
  EXPECT_EQ(rows.take_all(tokens),
            (std::vector{20, 25 + kRowsFromAnswerEnd, 29 + kRowsFromAnswerEnd}));
  EXPECT_TRUE(rows.take(kWord)) << "the answer goes on";
  EXPECT_TRUE(AbsorbedRows({}, ends).take_all(tokens).empty());
}

TEST(AbsorbedRows, AnAnswersPagesAreSharedAsFarAsAPromptHasItsForm) {
  const TokenId begins[] = {kOpens}, ends[] = {kCloses};
  const auto shared = [&](std::vector<TokenId> prompt, const std::vector<TokenId>& answer) {
    Request request;
    request.caches_whole_answer = false;
    request.prompt_len = static_cast<int>(prompt.size());
    request.absorbed_rows = AbsorbedRows(begins, ends);
    request.form_borders = request.absorbed_rows.take_all(prompt);
    request.tokens = std::move(prompt);
    std::ranges::copy(answer, std::back_inserter(request.tokens));
    return static_cast<int>(request.num_shareable());
  };
  EXPECT_EQ(shared(plain(5), plain(50)), 5) << "nothing opens an answer";
  EXPECT_EQ(shared({kWord, kOpens}, plain(50)), 52);
  std::vector<TokenId> answer_on = plain(10);
  answer_on.push_back(kCloses);
  std::ranges::copy(plain(2 * kRowsFromAnswerEnd), std::back_inserter(answer_on));
  EXPECT_EQ(shared({kWord, kOpens}, answer_on), 2 + 10 + kRowsFromAnswerEnd);
}

}  // namespace
}  // namespace hocket
