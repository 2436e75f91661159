#include "engine/balance/moving_steps.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

StepReport step_of(Phase phase, uint32_t rows, float us) {
  return {.rows = rows, .phase = static_cast<uint8_t>(phase), .is_valid = 1, .step_us = us};
}

class MovingStepsTest : public ::testing::Test {
 protected:
  // Steps of 64 answers take 990 to 1,010 us, those of prompts 9,000.
  MovingStepsTest() {
    for (int i = 0; i < 40; ++i) {
      EXPECT_FALSE(
          steps_.note(step_of(Phase::decode, 64, static_cast<float>(990 + 10 * (i % 3))), false));
      EXPECT_FALSE(steps_.note(step_of(Phase::prefill, 512, 9000), false));
    }
  }
  MovingSteps steps_;
};

TEST_F(MovingStepsTest, AStepIsComparedWithLikeStepsBeforeTheMove) {
  for (int i = 0; i < 100; ++i) {
    const auto answers = steps_.note(step_of(Phase::decode, 65, 1200), true);
    ASSERT_TRUE(answers.has_value());
    EXPECT_NEAR(answers->seconds, 1.2e-3, 1e-9);
    EXPECT_NEAR(answers->usual_seconds, 1e-3, 1e-9) << "steps of the move are not usual";
    EXPECT_NEAR(steps_.note(step_of(Phase::prefill, 512, 9900), true)->usual_seconds, 9e-3, 1e-9);
  }
}

// Nothing is known of steps of 100 answers before the eighth of them.
TEST_F(MovingStepsTest, AStepOfAnUnknownSizeIsNotCompared) {
  EXPECT_FALSE(steps_.note(step_of(Phase::decode, 100, 1500), true));
  steps_.note(step_of(Phase::decode, 64, 1000), false);  // the report of the move's last step
  for (int i = 0; i < MovingSteps::kMinLikeSteps; ++i) {
    EXPECT_FALSE(steps_.note(step_of(Phase::decode, 100, 1500), true));
    steps_.note(step_of(Phase::decode, 64, 1000), false);
    steps_.note(step_of(Phase::decode, 100, 1400), false);
  }
  const auto known = steps_.note(step_of(Phase::decode, 100, 1500), true);
  ASSERT_TRUE(known.has_value());
  EXPECT_NEAR(known->usual_seconds, 1.4e-3, 1e-9);
}

// A report comes with the agreement behind its step.
TEST_F(MovingStepsTest, TheReportBehindAMoveIsOfItsLastStep) {
  EXPECT_TRUE(steps_.note(step_of(Phase::decode, 64, 1200), true));
  EXPECT_TRUE(steps_.note(step_of(Phase::decode, 64, 1300), false));
  EXPECT_FALSE(steps_.note(step_of(Phase::decode, 64, 1000), false));
}

TEST_F(MovingStepsTest, AnyNumberOfRowsHasASize) {
  for (const uint32_t rows : {0u, 1u, UINT32_MAX})
    for (int i = 0; i <= MovingSteps::kMinLikeSteps; ++i)
      EXPECT_FALSE(steps_.note(step_of(Phase::decode, rows, 5), false));
  EXPECT_NEAR(steps_.note(step_of(Phase::decode, UINT32_MAX, 7), true)->usual_seconds, 5e-6, 1e-12);
}

}  // namespace
}  // namespace hocket
