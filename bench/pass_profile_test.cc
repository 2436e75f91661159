#include "bench/pass_profile.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr MachineSpeed kSpeed = {
    .read_bytes_per_s = 50e9, .operations_per_s = 400e9, .integer_operations_per_s = 2e12};

PassProfile profile() {
  PassProfile one;
  one.of(Op::experts) = {.seconds = 0.003, .bytes = 120e6, .operations = {.floats = 120e6}};
  one.of(Op::gate) = {.seconds = 0.00001};
  one.head = {.seconds = 0.001, .bytes = 25e6, .operations = {.integers = 200e6}};
  return one;
}

TEST(PassProfile, SharesAreOfTheMachinesLimits) {
  EXPECT_EQ(by_operation(profile(), 1, kSpeed),
            "    experts             3000 us  74.8 %  [0.80 read, 0.10 peak]\n"
            "    head                1000 us  24.9 %  [0.50 read, 0.10 peak]\n");
}

TEST(PassProfile, SumsOfPassesHaveTheMeansOfOne) {
  PassProfile three;
  for (int pass = 0; pass < 3; ++pass) three.add(profile());
  EXPECT_EQ(by_operation(three, 3, kSpeed), by_operation(profile(), 1, kSpeed));
  const auto json = by_operation_json(three, 3, kSpeed);
  EXPECT_NEAR(json["experts"]["us_per_step"].get<double>(), 3000, 1e-6);
  EXPECT_NEAR(json["experts"]["read_fraction"].get<double>(), 0.8, 1e-9);
  EXPECT_FALSE(json.contains("attn_in"));
}

}  // namespace
}  // namespace hocket
