#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace hocket {
namespace {

std::string name_of_this_thread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

TEST(Thread, HasItsNameCutToWhatTheKernelKeeps) {
  std::string name;
  Thread({.name = "a name of 20 letters"}, [&] { name = name_of_this_thread(); }).join();
  EXPECT_EQ(name, "a name of 20 le");
}

constexpr size_t kAskedBytes = 64 << 20;

// Returns the bytes of stack that a thread gets if it asks for kAskedBytes.
size_t stack_of_a_thread() {
  size_t bytes = 0;
  Thread thread({.name = "deep", .stack_bytes = kAskedBytes}, [&] {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* stack = nullptr;
    size_t guard = 0;
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    EXPECT_GE(guard, size_t{1} << 20);
  });
  thread.join();
  return bytes;
}

TEST(Thread, HasTheStackThatWasAskedFor) {
  EXPECT_GE(stack_of_a_thread(), kAskedBytes);
}

// Runs in a process of its own, because only the first thread of a process reads the variable.
TEST(ThreadDeathTest, HasThePartOfItThatTheEnvironmentSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto quarter = [] {
    setenv("HOCKET_STACK_PERCENT", "25", 1);
    const size_t bytes = stack_of_a_thread();
    std::_Exit(bytes >= kAskedBytes / 4 && bytes < kAskedBytes / 2 ? 0 : 1);
  };
  EXPECT_EXIT(quarter(), testing::ExitedWithCode(0), "");
}

TEST(ChooseStackPercent, TakesIntegersFrom10To100) {
  const auto chosen = [](const char* text) {
    setenv("HOCKET_STACK_PERCENT", text, 1);
    return choose_stack_percent().value_or(-1);
  };
  EXPECT_EQ(chosen(""), 100);
  EXPECT_EQ(chosen("10"), 10);
  EXPECT_EQ(chosen("100"), 100);
  for (const char* wrong : {"9", "101", "25%", "-25", "a", " 25", "99999999999"})
    EXPECT_EQ(chosen(wrong), -1) << wrong;
  unsetenv("HOCKET_STACK_PERCENT");
  EXPECT_EQ(choose_stack_percent().value_or(-1), 100);
}

TEST(Thread, AnExceptionReachesTheOwner) {
  std::string told;
  Thread({.name = "text0", .on_exception = [&](std::string_view what) { told = what; }}, [] {
    throw std::runtime_error("no more paper");
  }).join();
  EXPECT_EQ(told, "no more paper");
}

TEST(ThreadDeathTest, AnExceptionWithoutAnOwnerEndsTheProcessWithWords) {
  EXPECT_EXIT(Thread({.name = "text0"}, [] { throw std::bad_alloc(); }).join(),
              testing::KilledBySignal(SIGABRT), "thread text0: uncaught exception: std::bad_alloc");
}

TEST(Thread, IsCurrentWithinItselfOnly) {
  Thread thread;
  EXPECT_FALSE(thread.joinable());
  bool inside = false;
  std::atomic<bool> is_set = false;
  thread = Thread({.name = "one"}, [&] {
    is_set.wait(false);
    inside = thread.is_current();
  });
  EXPECT_FALSE(thread.is_current());
  is_set = true;
  is_set.notify_one();
  thread.join();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(thread.joinable());
}

// The program says of this error what to change.
TEST(Thread, WithoutRoomForItsStackIsAnErrorOfTheSystem) {
  try {
    const Thread thread({.name = "one", .stack_bytes = size_t{1} << 50}, [] {});
    FAIL() << "it was started";
  } catch (const std::system_error& e) {
    EXPECT_EQ(e.code(), std::errc::resource_unavailable_try_again);
    EXPECT_NE(std::string(e.what()).find("thread one cannot be started"), std::string::npos);
  }
}

TEST(Thread, IsJoinedWhereItsOwnerEnds) {
  bool done = false;
  {
    const Thread thread({.name = "one"}, [&] { done = true; });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace hocket
