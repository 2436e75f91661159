#include "engine/forward_thread.h"

#include <utility>

#include "base/check.h"

namespace hocket {

ForwardThread::ForwardThread(std::function<void()> adopt, Compute compute)
    : adopt_(std::move(adopt)),
      compute_(std::move(compute)),
      thread_({.name = "forward"}, [this] { serve(); }) {}

ForwardThread::~ForwardThread() {
  while (num_under_way() > 0) wait();
  stopping_.store(true, std::memory_order_relaxed);
  num_launched_.fetch_add(1, std::memory_order_release);
  num_launched_.notify_one();
  thread_.join();
}

void ForwardThread::push(Flight* flight) {
  const uint32_t launched = num_launched_.load(std::memory_order_relaxed);
  HOCKET_CHECK(launched - num_waited_ < kMaxSteps);
  ring_[launched % kMaxSteps] = flight;
  num_launched_.store(launched + 1, std::memory_order_release);
  num_launched_.notify_one();
}

Flight* ForwardThread::pop() {
  HOCKET_CHECK(num_under_way() > 0);
  uint32_t done = 0;
  while ((done = num_done_.load(std::memory_order_acquire)) == num_waited_)
    num_done_.wait(done, std::memory_order_acquire);
  return ring_[num_waited_++ % kMaxSteps];
}

void ForwardThread::run(const std::function<void()>& job) {
  HOCKET_CHECK(num_under_way() == 0);
  job_ = &job;
  push(nullptr);
  pop();
}

void ForwardThread::serve() {
  adopt_();
  std::span<const SampledToken> before;
  for (uint32_t next = 0;; ++next) {
    num_launched_.wait(next, std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (Flight* const flight = ring_[next % kMaxSteps]; flight != nullptr) {
      compute_(*flight, before);
      before = flight->sampled;
    } else {
      (*job_)();
    }
    num_done_.store(next + 1, std::memory_order_release);
    num_done_.notify_one();
  }
}

}  // namespace hocket
