#include "base/timed_calls.h"

#include <gtest/gtest.h>

#include <future>
#include <new>
#include <stdexcept>
#include <thread>

namespace hocket {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(100);

TimedCalls::Options timed_options(int num_threads) {
  return {.name = "timed",
          .target = "the folder /mnt/kv",
          .num_threads = num_threads,
          .limit = kShort,
          .fix = "look at the mount"};
}

// A call that returns when it is let go.
struct HangingCall {
  std::shared_ptr<std::promise<void>> end = std::make_shared<std::promise<void>>();
  std::move_only_function<Result<int>()> call() const {
    return [ended = end->get_future()]() mutable -> Result<int> {
      ended.wait();
      return 1;
    };
  }
};

TEST(TimedCallsTest, ACallReturnsItsResultOrItsError) {
  TimedCalls calls(timed_options(1));
  EXPECT_EQ(calls.run<int>([]() -> Result<int> { return 7; }), 7);
  const auto failed = calls.run<int>([]() -> Result<int> { return fail(ErrorCode::io, "full"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "full");
}

TEST(TimedCallsTest, AnExceptionIsTheErrorOfItsCallAlone) {
  TimedCalls calls(timed_options(1));
  const auto no_memory = calls.run<int>([]() -> Result<int> { throw std::bad_alloc(); });
  ASSERT_FALSE(no_memory);
  EXPECT_EQ(no_memory.error().code, ErrorCode::out_of_memory);
  const auto failed = calls.run<int>([]() -> Result<int> { throw std::runtime_error("torn"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "the folder /mnt/kv: torn");
  EXPECT_EQ(calls.run<int>([]() -> Result<int> { return 7; }), 7);
}

// The memory that it owns would stay for as long as the threads hang.
TEST(TimedCallsTest, ACallThatIsLeftBeforeItsTurnIsNotBegun) {
  TimedCalls calls(timed_options(1));
  const HangingCall hanging;
  EXPECT_FALSE(calls.run<int>(hanging.call()).has_value());
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = owned;
  const auto begun = calls.begin<int>([own = std::move(owned)]() -> Result<int> { return *own; });
  EXPECT_FALSE(watched.expired());
  calls.leave(begun);
  hanging.end->set_value();
  EXPECT_EQ(calls.run<int>([]() -> Result<int> { return 8; }), 8);
  EXPECT_EQ(begun.result->has_value(), false);
}

TEST(TimedCallsTest, ACallThatHangsIsLeftAndOthersGoOn) {
  TimedCalls calls(timed_options(2));
  const HangingCall hanging;
  const auto left = calls.run<int>(hanging.call());
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().code, ErrorCode::timed_out);
  EXPECT_EQ(left.error().message, "the folder /mnt/kv has not answered for 0 s");
  EXPECT_EQ(calls.run<int>([]() -> Result<int> { return 7; }), 7) << "there is another thread";
  hanging.end->set_value();
}

// So a lock that a call owns is kept until nothing of the call happens any more.
TEST(TimedCallsTest, ACallThatHangsKeepsWhatItOwnsUntilItEnds) {
  TimedCalls calls(timed_options(1));
  const HangingCall hanging;
  auto own = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = own;
  EXPECT_FALSE(calls.run<int>([own, call = hanging.call()]() mutable { return call(); }));
  own.reset();
  EXPECT_FALSE(seen.expired());
  hanging.end->set_value();
  for (int i = 0; i < 1000 && !seen.expired(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(seen.expired());
}

TEST(TimedCallsTest, WhileAllHangCallsFailAtOnceAndLaterTheyDoNot) {
  TimedCalls calls(timed_options(1));
  const HangingCall hanging;
  EXPECT_FALSE(calls.run<int>(hanging.call()));
  const TimePoint begin = RealClock().now();
  EXPECT_FALSE(calls.run<int>([]() -> Result<int> { return 7; }));
  EXPECT_LT(RealClock().now() - begin, 20 * kShort);
  hanging.end->set_value();
  Result<int> again = fail(ErrorCode::io, "");
  for (int i = 0; i < 100 && !again; ++i) again = calls.run<int>([]() -> Result<int> { return 7; });
  EXPECT_EQ(again, 7);
}

TEST(TimedCallsTest, TheEndDoesNotWaitForACallThatHangs) {
  const HangingCall hanging;
  const TimePoint begin = RealClock().now();
  {
    TimedCalls calls(timed_options(1));
    EXPECT_FALSE(calls.run<int>(hanging.call()));
  }
  EXPECT_LT(RealClock().now() - begin, std::chrono::seconds(5));
  hanging.end->set_value();
}

TEST(TimedCallsTest, ManyCallsAtOnceAllReturn) {
  TimedCalls calls(timed_options(2));
  std::vector<std::future<Result<int>>> results;
  for (int i = 0; i < 16; ++i)
    results.push_back(std::async(std::launch::async, [&calls, i] {
      return calls.run<int>([i]() -> Result<int> { return i; });
    }));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(results[static_cast<size_t>(i)].get(), i);
}

}  // namespace
}  // namespace hocket
