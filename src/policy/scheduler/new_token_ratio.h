// The share of their remaining max_new_tokens for which running requests hold memory back from
// newcomers. Low admits more and risks retraction; it falls while all goes well and jumps up after
// a retraction.
//   start = min(0.7 conservativeness, 1), low = 0.14 start
//   falls to `low` in 600 decode steps, from the start or from where it jumped; idle starts again
// Thread: engine.
#pragma once

#include <algorithm>

namespace hocket {

class NewTokenRatio {
 public:
  explicit NewTokenRatio(double conservativeness)
      : start_(std::min(0.7 * conservativeness, 1.0)), low_(0.14 * start_) {
    reset();
  }

  double now() const { return now_; }
  void decay() { now_ = std::max(low_, now_ - step_); }
  void reset() { jump(start_); }

  // After a retraction, from the survivors: what they have used already, and 20 steps more each.
  // Never lowers the ratio: young survivors would otherwise invite back at once what was just
  // thrown out.
  void raise(double generated, double max_new_tokens, double num_requests) {
    jump(std::max(now_, std::min(1.0, (generated + 20 * num_requests) / (max_new_tokens + 1))));
  }

 private:
  void jump(double to) {
    now_ = to;
    step_ = (to - low_) / 600;
  }

  double start_, low_;
  double now_ = 0, step_ = 0;
};

}  // namespace hocket
