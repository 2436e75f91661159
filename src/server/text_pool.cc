#include "server/text_pool.h"

#include <optional>
#include <string>
#include <utility>

namespace hocket {

TextPool::TextPool(const Options& options) : tasks_(options.max_waiting) {
  for (int i = 0; i < options.num_threads; ++i)
    threads_.emplace_back(Thread::Options{.name = options.name + std::to_string(i)},
                          [this] { run(); });
}

TextPool::~TextPool() {
  tasks_.close();
  for (Thread& thread : threads_) thread.join();
}

namespace {

// State of the task that this thread runs.
struct Turn {
  TextPool* pool = nullptr;  // null: no task, or one that runs inside give_way()
  TimePoint began;
};
thread_local Turn turn;

}  // namespace

void TextPool::give_way() {
  if (turn.pool == nullptr || RealClock().now() - turn.began < kTurn) return;
  TextPool* const pool = std::exchange(turn.pool, nullptr);
  pool->run_one_that_waits();
  turn = {.pool = pool, .began = RealClock().now()};
}

// If another thread has the lock, it waits for a task: then none is waiting.
void TextPool::run_one_that_waits() {
  std::optional<Task> task;
  if (const std::unique_lock reading(reader_, std::try_to_lock); reading) task = tasks_.pop();
  if (task) (*task)();
}

void TextPool::run() {
  while (true) {
    std::optional<Task> task;
    {
      std::lock_guard reading(reader_);
      task = tasks_.wait_pop(std::chrono::seconds(1));
      if (!task && tasks_.closed()) return;
    }
    if (!task) continue;
    turn = {.pool = this, .began = RealClock().now()};
    (*task)();
  }
}

}  // namespace hocket
