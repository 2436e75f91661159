// A thread with a name, a stack of known size and a handler for exceptions that leave its function.
// Every thread of hocket is one of these. It has an alternate signal stack, so that a stack
// overflow leaves a crash report (base/black_box.h).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// The stack size; it does not depend on `ulimit -s`.
inline constexpr size_t kStackBytes = 8 << 20;

// Returns the percentage of Options::stack_bytes that each thread gets: 100, or
// HOCKET_STACK_PERCENT. Tests lower it: a program that runs with a quarter of its stacks has room
// to spare. Errors: bad_value if it is no integer from 10 to 100; then threads get 100.   Thread:
// any.
Result<int> choose_stack_percent();

class Thread {
 public:
  struct Options {
    std::string name;  // shown by `top` and the crash report; cut to 15 bytes
    // Scaled by choose_stack_percent(), as the first thread read it.
    size_t stack_bytes = kStackBytes;
    // Called on the thread with the text of an exception that left `body`; then the thread ends. If
    // this is empty, such an exception is a bug: it is logged and the process ends with SIGABRT.
    std::function<void(std::string_view what)> on_exception = {};
  };

  Thread() = default;
  // Throws std::system_error when the system refuses another thread, as std::thread does.
  Thread(Options options, std::move_only_function<void()> body);
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  // Joins the thread.
  ~Thread();

  bool joinable() const { return joinable_; }
  void join();    // Precondition: joinable.
  void detach();  // Precondition: joinable.
  // Returns true if the caller runs on this thread.
  bool is_current() const { return joinable_ && pthread_equal(handle_, pthread_self()) != 0; }

 private:
  pthread_t handle_{};
  bool joinable_ = false;
};

// While it lives, the calling thread handles no signal, and threads that it starts never do.
// Thread: made and destroyed on the same one.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

// While it lives, the calling thread handles signals on this stack, since its own may be full.
// Thread: made and destroyed on the same one.
class AlternateStack {
 public:
  using Memory = std::unique_ptr<char[]>;
  static Memory make_memory();

  explicit AlternateStack(Memory memory = make_memory());
  ~AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  const Memory memory_;
  stack_t before_{};
};

}  // namespace hocket
