// Simulates services of which ranks may be missing, whatever fails: no two epochs ever serve at
// once, a leave that is allowed pauses nobody, a cut link ends one epoch, and all serve again once
// nothing fails any more.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"
#include "cluster/tolerance_testing.h"

namespace hocket {
namespace {

constexpr int kTicks = 1500, kCalmTicks = 2500;

// Returns a number of `./hocket test simulation --seeds N --first-seed F`.
unsigned given_number(const char* name, unsigned otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
}

class ToleranceSimulation : public testing::TestWithParam<ServiceSize> {
 protected:
  void SetUp() override { log::set_level(log::Level::off); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(ToleranceSimulation, NoTwoEpochsServeAtOnceAndAllServeInTheEnd) {
  int num_whole = 0, num_smaller = 0, num_left = 0, num_begun = 0, num_apart = 0;
  const unsigned seeds = given_number("HOCKET_SIMULATION_SEEDS", 40);
  const unsigned first = given_number("HOCKET_SIMULATION_FIRST_SEED", 0);
  for (unsigned seed = first; seed < first + seeds; ++seed) {
    SimulatedService service(GetParam(), seed);
    for (int i = 0; i < kTicks; ++i) {
      service.tick();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << ", tick " << i;
    }
    num_whole += service.num_whole;
    num_smaller += service.num_smaller;
    num_left += service.num_left;
    num_begun += service.num_begun;
    num_apart += service.num_apart;
    service.calm_down();
    for (int i = 0; i < kCalmTicks && !service.all_serve(); ++i) {
      service.tick();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << ", calm tick " << i;
    }
    ASSERT_TRUE(service.all_serve()) << "seed " << seed;
  }
  if (seeds < 40) return;  // a few stories need not have all of these
  EXPECT_GT(num_whole, static_cast<int>(seeds));
  EXPECT_GT(num_smaller, static_cast<int>(seeds));
  EXPECT_GT(num_left, 0);
  EXPECT_GT(num_begun, static_cast<int>(seeds / 8));
  if (GetParam().has_link()) {
    EXPECT_GT(num_apart, static_cast<int>(seeds));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ToleranceSimulation,
                         testing::Values(ServiceSize{5, 2, true}, ServiceSize{5, 2, false},
                                         ServiceSize{2, 1, false}, ServiceSize{4, 2, false},
                                         ServiceSize{4, 3, false}),
                         [](const auto& size) {
                           return fmt::format("{}ranks{}missing{}", size.param.num_ranks,
                                              size.param.tolerate_ranks,
                                              size.param.has_store ? "Etcd" : "");
                         });

}  // namespace
}  // namespace hocket
