// A pool of threads with one queue: `text0`, `text1`, ... do the slow work before the
// engine gets a request (JSON, templates, tokens), so that the http threads need not.
//
// Clients take turns: even if one client has many tasks, the first task of another client waits for
// at most one task of each client. Where tasks may take long, a client can be kept from having all
// threads at once. Tasks that work on the same thing name it by a key, and run one after the other;
// those that wait for another one hold no thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"

namespace hocket {

class TaskPool {
 public:
  using Task = std::move_only_function<void()>;

  struct Options {
    std::string name;  // prefix of the threads' names; a number follows
    int num_threads = 1;
    size_t max_waiting = 2048;      // limit on tasks of all clients
    size_t max_of_client = 256;     // limit per client: at least eight clients fill the queue
    int max_running_of_client = 0;  // tasks that run at once; 0: as many as there are threads
  };
  explicit TaskPool(const Options& options);
  // Runs the tasks that wait, then ends.
  ~TaskPool();

  // Adds a task. On an error it is not added. Errors: queue_full, which says whether too many tasks
  // of this client or of all clients wait; shutting_down. key: no two tasks with the same key run
  // at once; 0: none.   Thread: any.
  Result<void> push(Task&& task, uint64_t client = 0, uint64_t key = 0);

  // Lets other clients have a turn; a task calls it between two pieces of its work. If the task has
  // had its thread for kTurn and all threads are busy, runs one waiting task to its end on this
  // thread; that task may call it too. Does nothing on a thread that belongs to no pool.
  static void yield_turn();
  static constexpr Duration kTurn = std::chrono::milliseconds(100);

 private:
  void run();
  void run_one_that_waits();
  // The client whose limit a task counts in while it runs, and the key that it keeps.
  struct RunningTask {
    uint64_t client = 0, key = 0;
    bool operator==(const RunningTask&) const = default;
  };
  struct WaitingTask {
    Task task;
    uint64_t key = 0;
  };
  struct TakenTask {
    Task task;
    RunningTask running;
  };
  using Queue = std::deque<WaitingTask>;
  void carry_out(TakenTask& taken);
  void end(const RunningTask& running);
  Queue::const_iterator first_that_may_run(uint64_t client, const Queue& queue) const
      HOCKET_REQUIRES(mutex_);
  bool has_task() const HOCKET_REQUIRES(mutex_);
  std::optional<TakenTask> take() HOCKET_REQUIRES(mutex_);
  Result<void> check_room(uint64_t client) const HOCKET_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  std::condition_variable arrived_;
  // By client; no queue is empty.
  std::map<uint64_t, Queue> waiting_ HOCKET_GUARDED_BY(mutex_);
  size_t num_waiting_ HOCKET_GUARDED_BY(mutex_) = 0;
  uint64_t last_client_ HOCKET_GUARDED_BY(mutex_) = 0;          // the client that had the last turn
  std::vector<RunningTask> running_ HOCKET_GUARDED_BY(mutex_);  // by task that runs
  int num_idle_ HOCKET_GUARDED_BY(mutex_) = 0;                  // threads that wait for a task
  bool closing_ HOCKET_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace hocket
