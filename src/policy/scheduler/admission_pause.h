// Pauses admission after a waiting request did not fit, until something changes or some decode
// steps have lowered the reserve.   Owner: the scheduler.   Thread: engine.
#pragma once

namespace hocket {

class AdmissionPause {
 public:
  // Call when a waiting request did not fit, or a running one was sent back.
  void begin() {
    is_active_ = true;
    num_steps_ = 0;
  }
  // Call when something changed that may make room.
  void end() { is_active_ = false; }
  bool is_active() const { return is_active_; }

  // Call once a step. The reserve shrinks with NewTokenRatio, so a request that did not fit may fit
  // some steps later although none has ended.
  void count_step() {
    if (++num_steps_ >= kStepsBetweenTries) end();
  }
  // Returns true if it is active after the next count_step(), too.
  bool is_active_next_step() const { return is_active_ && num_steps_ + 1 < kStepsBetweenTries; }

 private:
  static constexpr int kStepsBetweenTries = 16;

  bool is_active_ = false;
  int num_steps_ = 0;
};

}  // namespace hocket
