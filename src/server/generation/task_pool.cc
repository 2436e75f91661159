#include "server/generation/task_pool.h"

#include <string>
#include <utility>

#include "core/queue_limits.h"
#include "server/http/retry_after.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kUnreadLimit{"{} requests wait to be read", kRetryAfterFix};
constexpr QueueLimit<int64_t> kUnreadOfClientLimit{"{} requests of this client wait to be read",
                                                   kRetryAfterFix};

}  // namespace

TaskPool::TaskPool(const Options& options) : options_(options) {
  for (int i = 0; i < options.num_threads; ++i)
    threads_.emplace_back(Thread::Options{.name = options.name + std::to_string(i)},
                          [this] { run(); });
}

TaskPool::~TaskPool() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

Result<void> TaskPool::check_room(uint64_t client) const {
  const auto mine = waiting_.find(client);
  const auto max_of_client = static_cast<int64_t>(options_.max_of_client);
  HOCKET_TRY_VOID(check_limit(
      kUnreadOfClientLimit,
      {.used = mine == waiting_.end() ? 0 : std::ssize(mine->second), .max = max_of_client},
      max_of_client));
  const auto max_waiting = static_cast<int64_t>(options_.max_waiting);
  return check_limit(kUnreadLimit, {.used = static_cast<int64_t>(num_waiting_), .max = max_waiting},
                     max_waiting);
}

Result<void> TaskPool::push(Task&& task, uint64_t client) {
  {
    const MutexLock lock(mutex_);
    if (closing_) return fail(ErrorCode::shutting_down, "the server is shutting down");
    HOCKET_TRY_VOID(check_room(client));
    const auto entry = waiting_.try_emplace(client).first;
    try {
      entry->second.push_back(std::move(task));
    } catch (...) {  // take() needs a task for each client in waiting_
      if (entry->second.empty()) waiting_.erase(entry);
      throw;
    }
    ++num_waiting_;
  }
  arrived_.notify_one();
  return {};
}

// Returns the oldest task of the next client; nullopt if none waits.
//
//   waiting_  client 3: t t t | 5: t | 9: t t      last_client_ = 3: 5 is next, then 9, then 3
std::optional<TaskPool::Task> TaskPool::take() {
  if (waiting_.empty()) return std::nullopt;
  auto turn = waiting_.upper_bound(last_client_);
  if (turn == waiting_.end()) turn = waiting_.begin();
  last_client_ = turn->first;
  std::optional<Task> task = std::move(turn->second.front());
  turn->second.pop_front();
  if (turn->second.empty()) waiting_.erase(turn);
  --num_waiting_;
  return task;
}

namespace {

// Limit of nested tasks: a task that gives way stays on its thread's stack.
constexpr int kMaxGivenWay = 16;

// The state of the task that this thread runs.
struct Turn {
  TaskPool* pool = nullptr;  // null: no task
  TimePoint began;
  int given_way = 0;  // number of tasks below it on this stack that gave way
};
thread_local Turn turn;

}  // namespace

void TaskPool::yield_turn() {
  if (turn.pool == nullptr || turn.given_way == kMaxGivenWay) return;
  const TimePoint now = RealClock().now();
  if (now - turn.began < kTurn) return;
  const Turn mine = turn;
  turn = {.pool = mine.pool, .began = now, .given_way = mine.given_way + 1};
  mine.pool->run_one_that_waits();
  turn = {.pool = mine.pool, .began = RealClock().now(), .given_way = mine.given_way};
}

// Does nothing if another thread is idle, since that thread takes the tasks that wait.
void TaskPool::run_one_that_waits() {
  std::optional<Task> task;
  {
    const MutexLock lock(mutex_);
    if (num_idle_ == 0) task = take();
  }
  if (task) (*task)();
}

void TaskPool::run() {
  while (true) {
    std::optional<Task> task;
    {
      MutexLock lock(mutex_);
      ++num_idle_;
      arrived_.wait(lock,
                    [this]() HOCKET_REQUIRES(mutex_) { return closing_ || !waiting_.empty(); });
      --num_idle_;
      task = take();
    }
    if (!task) return;
    turn = {.pool = this, .began = RealClock().now(), .given_way = 0};
    (*task)();
  }
}

}  // namespace hocket
