// The share of their remaining max_new_tokens for which running requests hold memory back from
// newcomers. Low admits more and risks retraction; it falls while all goes well and jumps up after
// a retraction.
//   start min(0.7 conservativeness, 1), falls in 600 decode steps to 0.14 of that, starts again
//   when idle.
// Thread: engine.
#pragma once

#include <algorithm>

namespace hocket {

class NewTokenRatio {
 public:
  explicit NewTokenRatio(double conservativeness)
      : start_(std::min(0.7 * conservativeness, 1.0)), min_(0.14 * start_), now_(start_) {}

  double now() const { return now_; }
  void decay() { now_ = std::max(min_, now_ - (start_ - min_) / 600); }
  void reset() { now_ = start_; }

  // After a retraction, from the survivors: what they have used already, and 20 steps more each.
  // Never lowers the ratio: young survivors would otherwise invite back at once what was just
  // thrown out.
  void raise(double generated, double max_new_tokens, double num_requests) {
    now_ = std::max(now_, std::min(1.0, (generated + 20 * num_requests) / (max_new_tokens + 1)));
  }

 private:
  double start_, min_, now_;
};

}  // namespace hocket
