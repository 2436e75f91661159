// Runs calls that may hang, such as those to files on a mount that has stopped answering or to the
// system's resolver, on threads of its own, so that no caller waits for one beyond a limit.
//
// Nothing ends a call that hangs. It is left to itself, and may only use what it owns; its thread
// takes others as soon as it returns. While all threads hang, further calls fail at once. The end
// of the process waits for none of them. An exception that leaves a call is that call's error.
// Thread: any.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread.h"

namespace hocket {

class TimedCalls {
 public:
  struct Options {
    std::string name;     // the threads have it
    std::string target;   // begins errors: "the folder /mnt/kv"
    int num_threads = 2;  // calls that run at once; others wait their turn
    Duration limit{};     // how long one call may take
    std::string fix;      // the remedy that errors name
    std::string param{};  // the flag that names the target
  };
  explicit TimedCalls(Options options);
  // Waits at most 200 ms for all calls to return. A thread whose call has not returned is detached.
  ~TimedCalls();

  // A call that was begun: its caller waits for it, or leaves it.
  struct Call;
  template <class T>
  struct Begun {
    std::shared_ptr<Call> call;
    std::shared_ptr<std::optional<Result<T>>> result;
  };
  // Begins `call`. It owns all that it uses, and may take the limit and `more`.
  template <class T>
  Begun<T> begin(std::move_only_function<Result<T>()> call, Duration more = Duration{}) {
    auto result = std::make_shared<std::optional<Result<T>>>();
    auto begun = add([result, call = std::move(call)]() mutable { *result = call(); }, more);
    return {std::move(begun), std::move(result)};
  }
  // Waits for it once, and returns what it returns. Errors: timed_out; those of the call;
  // out_of_memory or io if it throws.
  template <class T>
  Result<T> wait(const Begun<T>& begun) {
    auto done = finish(begun.call);
    if (!done) return std::unexpected(std::move(done.error()));
    return std::move(**begun.result);
  }
  // Says that nobody will wait for it: it is not begun if its turn has not come, and what it owns
  // is free.
  template <class T>
  void leave(const Begun<T>& begun) {
    drop(begun.call);
  }
  // Begins the call, and waits for it.
  template <class T>
  Result<T> run(std::move_only_function<Result<T>()> call, Duration more = Duration{}) {
    return wait(begin<T>(std::move(call), more));
  }

 private:
  struct Running;
  struct Shared;
  std::shared_ptr<Call> add(std::move_only_function<void()> body, Duration more);
  Result<void> finish(const std::shared_ptr<Call>& call);
  void drop(const std::shared_ptr<Call>& call);
  std::unexpected<Error> hung(Duration limit) const;
  Result<void> outcome_of(const std::exception_ptr& thrown) const;

  const Options options_;
  const std::shared_ptr<Shared> shared_;
  std::vector<Thread> threads_;
};

}  // namespace hocket
