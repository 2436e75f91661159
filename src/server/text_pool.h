// Threads with a common queue: `text0`, `text1`, ... do what may take a while before the generator
// sees a request (JSON, templates, tokens), so that the threads that talk to sockets need not.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/thread.h"

namespace hocket {

class TextPool {
 public:
  using Task = std::move_only_function<void()>;

  struct Options {
    std::string name;  // of its threads, each with a number behind it
    int num_threads = 1;
    size_t max_waiting = 256;
  };
  explicit TextPool(const Options& options);
  // Runs what waits, then ends.
  ~TextPool();

  // False, and nothing done, when too many wait.   Thread: any.
  [[nodiscard]] bool push(Task&& task) { return tasks_.push(std::move(task)); }

  // Called by a task between two pieces of its work: if it has had its thread for kTurn and all
  // threads are busy, runs one waiting task first, which may do the same. Does nothing on threads
  // of no pool.
  static void give_way();
  static constexpr Duration kTurn = std::chrono::milliseconds(100);

 private:
  void run();
  void run_one_that_waits();

  Mailbox<Task> tasks_;
  std::mutex reader_;  // held by the thread whose turn it is to wait for a task
  std::vector<Thread> threads_;
};

}  // namespace hocket
