// Decides whether one rank sends its prompts to other services (--disaggregation-mode). With `auto`
// it does while prompts would delay its answers more than the answers take themselves:
//
//   per token of an answer     | prompts that would be computed before it |  its own step  |
//                                           P / n                         >=       D
//
// P is the time that recent prompts are predicted to take here, wherever they are computed; n the
// recent steps with answers; D the time of those without a prompt. All three forget what is old.
// Owner: the rank's CacheTier. Thread: engine.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "engine/pages/prefill_role.h"

namespace hocket {

class PrefillLoad {
 public:
  // After this time 1/e of a sum is left. A change by the load stays for as long, because it is
  // measured over that time.
  static constexpr Duration kMeasured = std::chrono::seconds(10);

  // `role`: the process's, never null.
  explicit PrefillLoad(std::shared_ptr<PrefillRole> role) : role_(std::move(role)) {}
  ~PrefillLoad() { set(false); }
  PrefillLoad(const PrefillLoad&) = delete;
  PrefillLoad& operator=(const PrefillLoad&) = delete;

  // Notes a prompt that would take `to_compute` here, without the pages that were read, beside
  // `num_answers` running answers.
  void note_prompt(Duration to_compute, int num_answers, TimePoint now);
  // Notes a step of answers alone.
  void note_answers(Duration took, TimePoint now);
  // Notes a step of answers and prompts.
  void note_mixed_step(TimePoint now);
  // Returns true while others compute the prompts of this rank.
  bool sends_prompts(TimePoint now);

 private:
  void age(TimePoint now);
  // Decides again from the sums. With num_answers == 0 it may end the sending, never begin it.
  void decide(int num_answers, TimePoint now);
  void set(bool sends);

  const std::shared_ptr<PrefillRole> role_;
  bool sends_ = false;  // by its load
  std::optional<TimePoint> changed_;
  TimePoint aged_{};
  // Sums of recent time.
  double prompt_seconds_ = 0;                   // P
  double answer_steps_ = 0;                     // n
  double plain_steps_ = 0, plain_seconds_ = 0;  // steps of answers alone, for D
};

}  // namespace hocket
