// The thread that computes while the engine's commits and answers: worker 0 of the pool, for
// overlapped scheduling. Steps are computed in the order in which they were handed over, one after
// the other, so a step finds the tokens of the one before it sampled.   Thread: the engine's calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/thread.h"
#include "engine/flight.h"

namespace hocket {

class ForwardThread {
 public:
  explicit ForwardThread(const StepTools& tools);
  // After the steps handed over are done.
  ~ForwardThread();
  ForwardThread(const ForwardThread&) = delete;
  ForwardThread& operator=(const ForwardThread&) = delete;

  // Hands a prepared step over, which belongs to the thread until wait() returns it. At most
  // kMaxSteps may be under way.
  void launch(Flight& flight);
  // Waits for the oldest step under way to be done. Pre: there is one.
  Flight& wait();
  // Handed over, not waited for.
  int num_under_way() const { return static_cast<int>(num_launched_.load() - num_waited_); }

  static constexpr uint32_t kMaxSteps = 2;

 private:
  void run();

  StepTools tools_;
  std::array<Flight*, kMaxSteps> ring_{};
  uint32_t num_waited_ = 0;  // the caller's
  // Both only rise. A turn of the first past the last step means the end.
  alignas(64) std::atomic<uint32_t> num_launched_{0};
  alignas(64) std::atomic<uint32_t> num_done_{0};
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace hocket
