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

  // Returns what `call` returns. It owns all that it uses, and may take the limit and `more`.
  // Errors: timed_out; those of `call`; out_of_memory or io if it throws.
  template <class T>
  Result<T> run(std::move_only_function<Result<T>()> call, Duration more = Duration{}) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    auto done = finish([result, call = std::move(call)]() mutable { *result = call(); }, more);
    if (!done) return std::unexpected(std::move(done.error()));
    return std::move(**result);
  }

 private:
  struct Call;
  struct Running;
  struct Shared;
  Result<void> finish(std::move_only_function<void()> body, Duration more);
  std::unexpected<Error> hung(Duration more) const;
  Result<void> outcome_of(const std::exception_ptr& thrown) const;

  const Options options_;
  const std::shared_ptr<Shared> shared_;
  std::vector<Thread> threads_;
};

}  // namespace hocket
