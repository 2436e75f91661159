#include "compute/overlap/robust_line.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(RobustLines, AreNotMovedByOutliers) {
  RobustLine line;
  for (int i = 0; i < 16; ++i) {
    const double x = 10 + 10.0 * (i % 4);
    line.add(x, i % 5 == 0 ? 5000 : 4 + 2 * x);
  }
  EXPECT_NEAR(line.at(20), 44, 1e-6);
  EXPECT_NEAR(line.at(80), 164, 1e-6);
  EXPECT_EQ(line.count(), 16);
}

TEST(RobustLines, ForgetAtOnceWhatHasShifted) {
  RobustLine line;
  for (int i = 0; i < 16; ++i) line.add(10 + i, 2 * (10 + i));
  for (int i = 0; i < 3; ++i) line.add(20, 400);
  EXPECT_LE(line.count(), 3);
  EXPECT_NEAR(line.at(20), 400, 1e-6);
}

}  // namespace
}  // namespace hocket
