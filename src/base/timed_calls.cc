#include "base/timed_calls.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <new>

#include "base/mutex.h"

namespace hocket {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);
// The wait for a call that may be about to return, at the end.
constexpr Duration kMaxLeaving = std::chrono::milliseconds(200);

}  // namespace

struct TimedCalls::Call {
  std::move_only_function<void()> body;
  Duration limit{};
  bool done = false;
  std::exception_ptr thrown{};  // an exception that left the body
};

// The call that one thread runs.
struct TimedCalls::Running {
  std::shared_ptr<Call> call;  // null: it waits for one
  TimePoint begun{};
  bool ended = false;
};

// The threads own it, too: they may outlive the object.
struct TimedCalls::Shared {
  Mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Call>> queue HOCKET_GUARDED_BY(mutex);
  std::vector<Running> running HOCKET_GUARDED_BY(mutex);
  bool stopping HOCKET_GUARDED_BY(mutex) = false;

  void serve(size_t number) {
    MutexLock lock(mutex);
    while (true) {
      changed.wait(lock, [&]() HOCKET_REQUIRES(mutex) { return stopping || !queue.empty(); });
      if (queue.empty()) break;
      const std::shared_ptr<Call> call = queue.front();
      queue.pop_front();
      running[number] = {.call = call, .begun = RealClock().now()};
      lock.unlock();
      std::exception_ptr thrown;
      try {
        call->body();
      } catch (const std::exception&) {
        thrown = std::current_exception();
      }
      call->body = nullptr;  // it may own much
      lock.lock();
      call->thrown = std::move(thrown);
      call->done = true;
      running[number].call = nullptr;
      changed.notify_all();
    }
    running[number].ended = true;
    changed.notify_all();
  }
};

TimedCalls::TimedCalls(Options options)
    : options_(std::move(options)), shared_(std::make_shared<Shared>()) {
  const auto count = static_cast<size_t>(options_.num_threads);
  {
    const MutexLock lock(shared_->mutex);
    shared_->running.resize(count);
  }
  const BlockedSignals blocked;
  for (size_t i = 0; i < count; ++i)
    threads_.push_back(
        Thread({.name = options_.name}, [shared = shared_, i] { shared->serve(i); }));
}

TimedCalls::~TimedCalls() {
  MutexLock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kMaxLeaving, [&]() HOCKET_REQUIRES(shared_->mutex) {
    return std::ranges::all_of(shared_->running, &Running::ended);
  });
  for (size_t i = 0; i < threads_.size(); ++i)
    if (!shared_->running[i].ended) threads_[i].detach();
  lock.unlock();
  for (Thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

std::shared_ptr<TimedCalls::Call> TimedCalls::add(std::move_only_function<void()> body,
                                                  Duration more) {
  auto call = std::make_shared<Call>(std::move(body), options_.limit + more);
  const MutexLock lock(shared_->mutex);
  shared_->queue.push_back(call);
  shared_->changed.notify_all();
  return call;
}

Result<void> TimedCalls::finish(const std::shared_ptr<Call>& call) {
  const RealClock clock;
  MutexLock lock(shared_->mutex);
  const auto hangs = [&](const Running& running) {
    return running.call != nullptr && clock.now() - running.begun > running.call->limit;
  };
  while (!call->done) {
    shared_->changed.wait_for(lock, kPollInterval);
    const auto mine = std::ranges::find(shared_->running, call, &Running::call);
    if (mine != shared_->running.end() && hangs(*mine)) return hung(call->limit);
    const auto queued = std::ranges::find(shared_->queue, call);
    if (queued == shared_->queue.end() || !std::ranges::all_of(shared_->running, hangs)) continue;
    shared_->queue.erase(queued);
    return hung(call->limit);
  }
  return outcome_of(call->thrown);
}

void TimedCalls::drop(const std::shared_ptr<Call>& call) {
  const MutexLock lock(shared_->mutex);
  std::erase(shared_->queue, call);
}

std::unexpected<Error> TimedCalls::hung(Duration limit) const {
  return fail(error(ErrorCode::timed_out, "{} has not answered for {:.0f} s", options_.target,
                    to_seconds(limit))
                  .with_fix(options_.fix)
                  .with_param(options_.param));
}

Result<void> TimedCalls::outcome_of(const std::exception_ptr& thrown) const {
  if (!thrown) return {};
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return fail(error(ErrorCode::out_of_memory, "{}: there is too little memory for a call",
                      options_.target)
                    .with_fix("give the process more memory, or lower what it may use")
                    .with_param(options_.param));
  } catch (const std::exception& e) {
    return fail(error(ErrorCode::io, "{}: {}", options_.target, e.what())
                    .with_fix(options_.fix)
                    .with_param(options_.param));
  }
}

}  // namespace hocket
