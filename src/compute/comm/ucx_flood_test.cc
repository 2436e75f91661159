// Tests that a rank over UCX ends while messages of strangers keep its worker busy.
#ifdef HOCKET_HAS_UCX

#include <gtest/gtest.h>

#include <memory>

#include "compute/comm/ucx_end.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

constexpr int kFloodTurns = 100'000;  // the flood ends then, so that a mistake fails this test
int num_turns_of_flood = 0;

unsigned progress_in_flood(ucp_worker_h worker) {
  const unsigned num_events = ucx_library().value()->ucp_worker_progress(worker);
  return ++num_turns_of_flood < kFloodTurns ? 1 : num_events;
}

TEST(UcxFlood, ARankThatIsNeverIdleLooksAtItsTimeLimit) {
  const UcxOptions options = testing::ucx_tcp();
  if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
  UcxLibrary flooded = *ucx_library().value();
  flooded.ucp_worker_progress = progress_in_flood;
  auto end = std::make_unique<UcxEnd>(flooded, 0, 2, options);
  ASSERT_TRUE(end->open().has_value());
  num_turns_of_flood = 0;
  end->withdraw();
  end.reset();
  EXPECT_GT(num_turns_of_flood, 0);
  EXPECT_LT(num_turns_of_flood, kFloodTurns / 10);
}

}  // namespace
}  // namespace hocket

#endif
