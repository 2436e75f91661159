#include "server/text_pool.h"

#include <optional>
#include <string>

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

// A task that makes way stays on its thread's stack, so there is a bound.
constexpr int kGivenWayMax = 16;

// State of the task that this thread runs.
struct Turn {
  TextPool* pool = nullptr;  // null: no task
  TimePoint began;
  int given_way = 0;  // how many tasks have made way for it
};
thread_local Turn turn;

}  // namespace

void TextPool::give_way() {
  if (turn.pool == nullptr || turn.given_way == kGivenWayMax) return;
  const TimePoint now = RealClock().now();
  if (now - turn.began < kTurn) return;
  const Turn mine = turn;
  turn = {.pool = mine.pool, .began = now, .given_way = mine.given_way + 1};
  mine.pool->run_one_that_waits();
  turn = {.pool = mine.pool, .began = RealClock().now(), .given_way = mine.given_way};
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
    turn = {.pool = this, .began = RealClock().now(), .given_way = 0};
    (*task)();
  }
}

}  // namespace hocket
