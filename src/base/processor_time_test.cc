#include "base/processor_time.h"

#include <gtest/gtest.h>

#include <thread>

namespace hocket {
namespace {

TEST(ProcessorTime, GoesOnWhileAThreadComputesAndStandsStillWhileItWaits) {
  constexpr Duration kWait = std::chrono::milliseconds(100);
  const Duration begin = thread_processor_time();
  std::this_thread::sleep_for(kWait);
  const Duration after_wait = thread_processor_time();
  EXPECT_LT(after_wait - begin, kWait);
  const TimePoint deadline = RealClock().now() + std::chrono::seconds(30);
  while (thread_processor_time() - after_wait < std::chrono::milliseconds(1))
    ASSERT_LT(RealClock().now(), deadline);
}

}  // namespace
}  // namespace hocket
