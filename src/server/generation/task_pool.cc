#include "server/generation/task_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/queue_limits.h"
#include "server/http/retry_after.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kUnreadLimit{"{} requests wait to be read", kRetryAfterFix};
constexpr QueueLimit<int64_t> kUnreadOfClientLimit{"{} requests of this client wait to be read",
                                                   kRetryAfterFix};
// Limit of nested tasks: a task that gives way stays on its thread's stack.
constexpr int kMaxGivenWay = 16;

}  // namespace

TaskPool::TaskPool(const Options& options) : options_(options) {
  {
    const MutexLock lock(mutex_);
    running_.reserve(static_cast<size_t>(options.num_threads) * (1 + kMaxGivenWay));
  }
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

Result<void> TaskPool::push(Task&& task, uint64_t client, uint64_t key) {
  {
    const MutexLock lock(mutex_);
    if (closing_) return fail(ErrorCode::shutting_down, "the server is shutting down");
    HOCKET_TRY_VOID(check_room(client));
    const auto entry = waiting_.try_emplace(client).first;
    try {
      entry->second.push_back({.task = std::move(task), .key = key});
    } catch (...) {  // take() needs a task for each client in waiting_
      if (entry->second.empty()) waiting_.erase(entry);
      throw;
    }
    ++num_waiting_;
  }
  arrived_.notify_one();
  return {};
}

// Returns the end if none of the client's tasks may run now.
TaskPool::Queue::const_iterator TaskPool::first_that_may_run(uint64_t client,
                                                             const Queue& queue) const {
  if (options_.max_running_of_client > 0 &&
      std::ranges::count(running_, client, &RunningTask::client) >= options_.max_running_of_client)
    return queue.end();
  return std::ranges::find_if(queue, [&](const WaitingTask& task) HOCKET_REQUIRES(mutex_) {
    return task.key == 0 ||
           std::ranges::find(running_, task.key, &RunningTask::key) == running_.end();
  });
}

// Returns true if take() would return a task.
bool TaskPool::has_task() const {
  for (const auto& [client, queue] : waiting_)
    if (first_that_may_run(client, queue) != queue.end()) return true;
  return false;
}

// Returns the oldest task that may run of the next client that has one; nullopt if there is none.
//
//   waiting_  client 3: t t t | 5: t | 9: t t      last_client_ = 3: 5 is next, then 9, then 3
std::optional<TaskPool::TakenTask> TaskPool::take() {
  auto turn = waiting_.upper_bound(last_client_);
  for (size_t i = 0; i < waiting_.size(); ++i, ++turn) {
    if (turn == waiting_.end()) turn = waiting_.begin();
    auto& [client, queue] = *turn;
    const auto first = first_that_may_run(client, queue);
    if (first == queue.end()) continue;
    WaitingTask& waiting = queue[static_cast<size_t>(first - queue.begin())];
    TakenTask taken{.task = std::move(waiting.task),
                    .running = {.client = client, .key = waiting.key}};
    last_client_ = client;
    queue.erase(first);
    if (queue.empty()) waiting_.erase(turn);
    if (--num_waiting_ == 0 && closing_) arrived_.notify_all();
    running_.push_back(taken.running);
    return taken;
  }
  return std::nullopt;
}

void TaskPool::carry_out(TakenTask& taken) {
  struct Ends {  // its place and its key are given back, too, if the task throws
    ~Ends() { pool.end(running); }
    TaskPool& pool;
    const RunningTask running;
  };
  const Ends ends{*this, taken.running};
  taken.task();
}

// Tasks that were held back by this one may run afterwards: one for its place, one for its key.
// Threads that are idle must look for them, because this one may go on with the task that gave way.
void TaskPool::end(const RunningTask& running) {
  {
    const MutexLock lock(mutex_);
    running_.erase(std::ranges::find(running_, running));
    if (waiting_.empty() || num_idle_ == 0) return;
  }
  arrived_.notify_all();
}

namespace {

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
  struct Resumed {  // also if the task that runs now throws
    ~Resumed() {
      turn = {.pool = mine.pool, .began = RealClock().now(), .given_way = mine.given_way};
    }
    const Turn mine;
  };
  const Resumed resumed{turn};
  turn = {.pool = turn.pool, .began = now, .given_way = turn.given_way + 1};
  turn.pool->run_one_that_waits();
}

// Does nothing if another thread is idle, since that thread takes the tasks that wait.
void TaskPool::run_one_that_waits() {
  std::optional<TakenTask> taken;
  {
    const MutexLock lock(mutex_);
    if (num_idle_ == 0) taken = take();
  }
  if (taken) carry_out(*taken);
}

void TaskPool::run() {
  while (true) {
    std::optional<TakenTask> taken;
    {
      MutexLock lock(mutex_);
      ++num_idle_;
      // At the end, tasks that are held back still need their threads.
      arrived_.wait(lock, [this]() HOCKET_REQUIRES(mutex_) {
        return has_task() || (closing_ && num_waiting_ == 0);
      });
      --num_idle_;
      taken = take();
    }
    if (!taken) return;
    turn = {.pool = this, .began = RealClock().now(), .given_way = 0};
    carry_out(*taken);
  }
}

}  // namespace hocket
