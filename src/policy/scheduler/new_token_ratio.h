// The share of max_new_tokens, as far as not generated, that the scheduler reserves in memory for
// each running request before it admits others. A low ratio admits more and risks retractions, so
// it falls while there are none and jumps up after one.
//   start = min(0.7 conservativeness, 1), low = 0.14 start
//   falls to `low` in 600 decode steps, from the start or from where it jumped; idle: start again
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

  // Call after a retraction, with sums over the requests that still run: expects each to generate
  // 20 tokens more than it has. Never lowers the ratio: a low one, from young requests, would at
  // once readmit those just retracted.
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
