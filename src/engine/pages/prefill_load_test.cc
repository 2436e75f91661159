// Tests when a rank has others compute its prompts, in virtual time.
#include "engine/pages/prefill_load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hocket {
namespace {

using namespace std::chrono_literals;

class PrefillLoadTest : public ::testing::Test {
 protected:
  // Answers alone, a step of 100 ms after the other.
  void answer(PrefillLoad& load, Duration length, Duration step = 100ms) {
    for (const TimePoint end = now_ + length; now_ < end;) load.note_answers(step, now_ += step);
  }
  bool sends(PrefillLoad& load) { return load.sends_prompts(now_); }

  const std::shared_ptr<PrefillRole> role_ = std::make_shared<PrefillRole>(PrefillRole::Options{
      .mode = Disaggregation::automatic, .can_prefill = true, .can_decode = true});
  PrefillLoad load_{role_}, other_{role_};
  TimePoint now_ = TimePoint{} + 1h;
};

TEST_F(PrefillLoadTest, PromptsThatDelayATokenMoreThanItTakesAreSentAway) {
  load_.note_prompt(1h, 0, now_);
  EXPECT_FALSE(sends(load_)) << "no answer waits for it";
  now_ += 1h;
  answer(load_, 60s);  // 10 s of them count
  load_.note_prompt(5s, 3, now_);
  EXPECT_FALSE(sends(load_)) << "100 steps of 100 ms are delayed by 50 ms each";
  load_.note_prompt(4s, 3, now_);
  EXPECT_FALSE(sends(load_));
  load_.note_prompt(2s, 3, now_);
  EXPECT_TRUE(sends(load_)) << "by 110 ms each";
  EXPECT_TRUE(role_->sends_prompts());
}

// The border is the interval of the answers, not a time of ours.
TEST_F(PrefillLoadTest, TheBorderFollowsTheIntervalOfTheAnswers) {
  for (const Duration step : {Duration(10ms), Duration(1s)}) {
    PrefillLoad load(role_);
    answer(load, 60s, step);
    const double steps = 1 / (1 - std::exp(-to_seconds(step) / 10));  // that count
    load.note_prompt(from_seconds(0.9 * steps * to_seconds(step)), 1, now_);
    EXPECT_FALSE(sends(load)) << to_ms(step);
    load.note_prompt(from_seconds(0.2 * steps * to_seconds(step)), 1, now_);
    EXPECT_TRUE(sends(load)) << to_ms(step);
  }
}

// Few steps beside many prompts are as good a reason as many prompts beside many steps. Steps that
// hold both count as steps, and say nothing of the interval.
TEST_F(PrefillLoadTest, ARankThatHardlyAnswersForItsPromptsSendsThem) {
  answer(load_, 1s);
  for (int i = 0; i < 5; ++i) load_.note_mixed_step(now_ += 2s);
  load_.note_prompt(500ms, 3, now_);
  EXPECT_FALSE(sends(load_)) << "some 7 steps of 100 ms count";
  load_.note_prompt(400ms, 3, now_);
  EXPECT_TRUE(sends(load_));
}

TEST_F(PrefillLoadTest, EachRankHasALoadOfItsOwn) {
  for (int i = 0; i < 600; ++i)
    for (PrefillLoad* load : {&load_, &other_}) load->note_answers(100ms, now_ += 50ms);
  load_.note_prompt(6s, 3, now_);
  other_.note_prompt(6s, 3, now_);
  EXPECT_FALSE(sends(load_) || sends(other_)) << "neither has much, whatever both have";
  load_.note_prompt(6s, 3, now_);
  EXPECT_TRUE(sends(load_));
  EXPECT_FALSE(sends(other_));
}

TEST_F(PrefillLoadTest, AChangeHoldsAsLongAsItIsMeasured) {
  answer(load_, 60s);
  load_.note_prompt(11s, 3, now_);
  ASSERT_TRUE(sends(load_));
  answer(load_, 5s);
  EXPECT_TRUE(sends(load_)) << "changes would follow each other";
  answer(load_, 6s);
  EXPECT_FALSE(sends(load_));
  EXPECT_FALSE(role_->sends_prompts());
  load_.note_prompt(30s, 3, now_);
  EXPECT_FALSE(sends(load_));
  answer(load_, 11s);
  load_.note_prompt(30s, 3, now_);
  EXPECT_TRUE(sends(load_));
}

TEST_F(PrefillLoadTest, AnIdleTimeIsForgotten) {
  answer(load_, 60s);
  load_.note_prompt(1h, 3, now_);
  ASSERT_TRUE(sends(load_));
  now_ += 60s;
  EXPECT_FALSE(sends(load_)) << "no answer of a recent time is delayed";
  now_ += 1h;
  answer(load_, 10s);
  load_.note_prompt(1s, 3, now_);
  EXPECT_FALSE(sends(load_)) << "a prompt of an hour ago counts";
}

TEST_F(PrefillLoadTest, OnlyTheModeAutoFollowsTheLoad) {
  answer(load_, 60s);
  load_.note_prompt(1h, 3, now_);
  ASSERT_TRUE(sends(load_));
  EXPECT_TRUE(role_->set(Disaggregation::prefill));
  EXPECT_FALSE(sends(load_));
  EXPECT_TRUE(role_->set(Disaggregation::decode));
  EXPECT_TRUE(sends(load_) && sends(other_));
  EXPECT_TRUE(role_->set(Disaggregation::automatic));
  EXPECT_FALSE(sends(other_));
  {
    PrefillLoad gone(role_);
    answer(gone, 60s);
    gone.note_prompt(1h, 3, now_);
    EXPECT_TRUE(role_->sends_prompts());
  }
  EXPECT_FALSE(role_->sends_prompts()) << "a rank that is gone sends nothing";
}

}  // namespace
}  // namespace hocket
