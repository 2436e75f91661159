// Threads with a common queue: `text0`, `text1`, ... do what may take a while before the generator
// sees a request (JSON, templates, tokens), so that the threads that talk to sockets need not.
//
// Clients take turns: however many tasks one of them has, the first task of another one waits for
// at most one task of each client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread.h"

namespace hocket {

class TextPool {
 public:
  using Task = std::move_only_function<void()>;

  struct Options {
    std::string name;  // of its threads, each with a number behind it
    int num_threads = 1;
    size_t max_waiting = 2048;   // tasks of all clients
    size_t max_of_client = 256;  // tasks of one client: at least eight clients fill the queue
  };
  explicit TextPool(const Options& options);
  // Runs what waits, then ends.
  ~TextPool();

  // Errors, and nothing done: queue_full, which says whether too many tasks of all clients wait or
  // of this one; shutting_down.   Thread: any.
  Result<void> push(Task&& task, uint64_t client = 0);

  // A task calls this between two pieces of its work. If the task has had its thread for kTurn and
  // all threads are busy, runs one waiting task to its end on this thread; that task may do the
  // same. Does nothing on a thread that belongs to no pool.
  static void give_way();
  static constexpr Duration kTurn = std::chrono::milliseconds(100);

 private:
  void run();
  void run_one_that_waits();
  std::optional<Task> take();

  const Options options_;
  std::mutex mutex_;  // guards the members below but threads_
  std::condition_variable arrived_;
  std::map<uint64_t, std::deque<Task>> waiting_;  // by client; none empty
  size_t num_waiting_ = 0;
  uint64_t last_client_ = 0;  // whose turn it was
  int num_idle_ = 0;          // threads that wait for a task
  bool closing_ = false;
  std::vector<Thread> threads_;
};

}  // namespace hocket
