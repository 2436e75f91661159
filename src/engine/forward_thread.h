// The thread that computes steps while the engine's thread commits and answers: worker 0 of the
// pool, for overlapped scheduling. It computes steps one after the other in the order of launch(),
// so the tokens of the step before are sampled already. Thread: the engine's calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "base/thread.h"
#include "engine/flight.h"

namespace hocket {

class ForwardThread {
 public:
  // Computes a step; `before` are the tokens of the step before. Thread: forward.
  using Compute = std::function<void(Flight& flight, std::span<const SampledToken> before)>;
  // `adopt` is called first on the new thread.
  ForwardThread(std::function<void()> adopt, Compute compute);
  // Waits for the steps under way, then ends the thread.
  ~ForwardThread();
  ForwardThread(const ForwardThread&) = delete;
  ForwardThread& operator=(const ForwardThread&) = delete;

  // Launches a prepared step, which belongs to the thread until wait() returns it. At most
  // kMaxSteps may be under way.
  void launch(Flight& flight) { push(&flight); }
  // Waits until the oldest step under way is done. Precondition: there is one.
  Flight& wait() { return *pop(); }
  // Runs a job on the thread, which is no step, and waits for it. Precondition: no step is under
  // way.
  void run(const std::function<void()>& job);
  // Returns the number of steps that were launched and not waited for.
  int num_under_way() const { return static_cast<int>(num_launched_.load() - num_waited_); }

  static constexpr uint32_t kMaxSteps = 2;

 private:
  void serve();
  void push(Flight* flight);
  Flight* pop();

  const std::function<void()> adopt_;
  const Compute compute_;
  std::array<Flight*, kMaxSteps> ring_{};  // null: job_
  const std::function<void()>* job_ = nullptr;
  uint32_t num_waited_ = 0;  // touched by the caller only
  // Both counts only rise. If num_launched_ rises after stopping_ is set, no step follows and the
  // thread ends.
  alignas(64) std::atomic<uint32_t> num_launched_{0};
  alignas(64) std::atomic<uint32_t> num_done_{0};
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

// The flights of a rank, which its steps use in turn.
class FlightRing {
 public:
  std::span<Flight> all() { return flights_; }
  // Returns the flight that was taken longest ago. Those of the steps under way stay, and the one
  // before them, whose rows the model's own module may still read.
  Flight& take() {
    newest_ = (newest_ + 1) % flights_.size();
    return flights_[newest_];
  }
  // Returns the flight that was taken last.
  const Flight& newest() const { return flights_[newest_]; }

 private:
  std::array<Flight, ForwardThread::kMaxSteps + 1> flights_;
  size_t newest_ = 0;
};

}  // namespace hocket
