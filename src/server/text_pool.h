// The threads text0, text1, ...: what may take a while before the generator sees a request (JSON,
// templates, tokens) happens here and not on the threads that talk to sockets.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "base/mailbox.h"
#include "base/thread.h"

namespace hocket {

class TextPool {
 public:
  using Task = std::move_only_function<void()>;

  TextPool(int num_threads, size_t max_waiting);
  // Runs what waits, then ends.
  ~TextPool();

  // False, and nothing done, when too many wait.   Thread: any.
  [[nodiscard]] bool push(Task&& task) { return tasks_.push(std::move(task)); }

 private:
  void run();

  Mailbox<Task> tasks_;
  std::mutex reader_;  // held by the thread whose turn it is to wait for a task
  std::vector<Thread> threads_;
};

}  // namespace hocket
