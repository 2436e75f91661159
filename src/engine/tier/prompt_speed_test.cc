#include "engine/tier/prompt_speed.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::milliseconds;

TEST(PromptSpeed, IsThatOfTheRowsAndNotOfTheSteps) {
  PromptSpeed speed;
  EXPECT_FALSE(speed.is_known());
  speed.note(0, milliseconds(5));
  EXPECT_FALSE(speed.is_known());
  speed.note(1000, milliseconds(1000));
  EXPECT_EQ(speed.time_of(500), milliseconds(500));
  // The last row of a prompt pays a step of its own. A mean of the steps' times of a row would
  // say 20.8 ms a row now; 0.8 of the rows and their time, and 0.2 of this one, are 1.025.
  speed.note(1, milliseconds(100));
  EXPECT_NEAR(to_ms(speed.time_of(1)), (0.8 * 1000 + 0.2 * 100) / (0.8 * 1000 + 0.2 * 1), 1e-5);
}

TEST(PromptSpeed, BeginsWithWhatWasMeasuredBefore) {
  PromptSpeed speed(0.002);
  EXPECT_EQ(speed.time_of(100), milliseconds(200));
  // The first real step outweighs it.
  speed.note(1000, milliseconds(1000));
  EXPECT_NEAR(to_ms(speed.time_of(1)), 1.0, 0.01);
}

TEST(PromptSpeed, FollowsNewerSteps) {
  PromptSpeed speed;
  speed.note(100, milliseconds(100));
  for (int i = 0; i < 60; ++i) speed.note(100, milliseconds(300));
  EXPECT_NEAR(to_ms(speed.time_of(1)), 3.0, 0.01);
}

}  // namespace
}  // namespace hocket
