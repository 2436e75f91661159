#include "engine/stats/recent_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RecentStepsTest : public ::testing::Test {
 protected:
  RecentStepsTest() { clock_.advance(1h); }

  // Notes a step of 100 us: an operation of 60 us, and another of 40 us.
  void step(Ledger& ledger, uint64_t number) {
    ledger.begin_step(clock_.now());
    ledger.begin_pass(number, {}, {Phase::decode, 4, 400}, false);
    for (const auto& [op, took] : {std::pair(Op::attn_in, 60us), std::pair(Op::experts, 40us)}) {
      ledger.begin_op(0, op, 0);
      clock_.advance(took);
      ledger.end_op();
    }
    ledger.end_step(clock_.now());
  }
  static RecentSteps::Options of(int num_ranks) {
    return {.num_here = num_ranks,
            .num_ranks = num_ranks,
            .model = "tiny",
            .orders = &OrderTable::builtin(),
            .spans_per_step = Ledger::max_spans({1, num_ranks})};
  }
  static std::vector<uint64_t> numbers(const RecentSteps::RankSteps& rank) {
    std::vector<uint64_t> out;
    for (const RecentSteps::Step& step : rank.steps) out.push_back(step.number);
    return out;
  }

  FakeClock clock_;
  Ledger ledgers_[2] = {{{.num_layers = 1, .num_ranks = 2}, clock_},
                        {{.num_layers = 1, .num_ranks = 2}, clock_}};
};

TEST_F(RecentStepsTest, KeepsTheNewestWithWhatWasBooked) {
  RecentSteps recent(of(2));
  for (uint64_t number = 1; number <= 70; ++number)
    for (const int rank : {0, 1}) {
      step(ledgers_[rank], number);
      recent.note(rank, ledgers_[rank]);
    }
  const auto all = recent.accounts();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[1].rank, 1);
  ASSERT_THAT(all[1].steps, SizeIs(RecentSteps::kSteps));
  EXPECT_EQ(all[1].steps.front().number, 7);
  const RecentSteps::Step& last = all[1].steps.back();
  EXPECT_EQ(last.number, 70);
  EXPECT_EQ(last.plan, "none");
  EXPECT_EQ(last.account.took, 100us);
  EXPECT_EQ(last.account.compute[static_cast<size_t>(Op::experts)], 40us);

  EXPECT_THAT(last.spans, IsEmpty());
  const auto one = recent.steps(70);
  ASSERT_THAT(one, SizeIs(2));
  ASSERT_THAT(one[0].steps, SizeIs(1));
  ASSERT_THAT(one[0].steps[0].spans, SizeIs(2));
  EXPECT_EQ(one[0].steps[0].spans[1].op, Op::experts);
  EXPECT_THAT(recent.steps(3)[0].steps, IsEmpty());
  const auto whole = recent.steps(std::nullopt);
  ASSERT_THAT(whole[1].steps, SizeIs(RecentSteps::kSteps));
  for (const RecentSteps::Step& step : whole[1].steps) EXPECT_THAT(step.spans, SizeIs(2));
}

TEST_F(RecentStepsTest, OneRankCountsForItself) {
  RecentSteps recent(of(1));
  Ledger ledger({.num_layers = 1}, clock_);
  for (int i = 0; i < 3; ++i) {
    step(ledger, 0);
    recent.note(0, ledger);
  }
  ledger.begin_step(clock_.now());
  ledger.end_step(clock_.now());  // a step without a pass
  recent.note(0, ledger);
  EXPECT_THAT(numbers(recent.accounts()[0]), ElementsAre(1, 2, 3));
  const auto whole = recent.steps(std::nullopt);
  EXPECT_THAT(whole[0].steps[0].spans, IsEmpty());  // the ledger was not asked yet to keep spans
  EXPECT_THAT(whole[0].steps[1].spans, SizeIs(2));
}

TEST_F(RecentStepsTest, TheTraceHasAllOfThem) {
  RecentSteps recent(of(2));
  for (uint64_t number = 5; number <= 7; ++number)
    for (const int rank : {0, 1}) {
      step(ledgers_[rank], number);
      recent.note(rank, ledgers_[rank]);
    }
  const auto text = recent.trace();
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const auto trace = nlohmann::json::parse(*text);
  int num_steps = 0, num_ops = 0;
  for (const auto& event : trace["traceEvents"]) {
    num_steps += event.value("cat", "") == "step" ? 1 : 0;
    num_ops += event.value("cat", "") == "compute" ? 1 : 0;
  }
  EXPECT_EQ(num_steps, 6);
  EXPECT_EQ(num_ops, 8);  // the first steps have none
}

// A step that is read is whole, while the engine writes others.
TEST_F(RecentStepsTest, ReadersAndTheEngineDoNotDisturbEachOther) {
  RecentSteps recent(of(1));
  std::atomic<bool> is_over = false;
  std::jthread reader([&] {
    while (!is_over) {
      uint64_t last = 0;
      const auto ranks = recent.accounts();
      for (const RecentSteps::Step& step : ranks[0].steps) {
        ASSERT_GT(step.number, last);
        ASSERT_EQ(step.account.took, 100us);
        last = step.number;
      }
      for (const RecentSteps::RankSteps& rank : recent.steps(last))
        for (const RecentSteps::Step& step : rank.steps) ASSERT_LE(step.spans.size(), 2u);
    }
  });
  Ledger ledger({.num_layers = 1}, clock_);
  for (int i = 0; i < 20'000; ++i) {
    step(ledger, 0);
    recent.note(0, ledger);
  }
  is_over = true;
}

}  // namespace
}  // namespace hocket
