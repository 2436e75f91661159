#include "engine/pages/prefill_load.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace hocket {
namespace {

// With fewer recent steps than this the rank has had no answers lately.
constexpr double kMinSteps = 1;
// The mean D is used down to this weight of its steps, because steps without prompts are rare where
// prompts are many.
constexpr double kMinPlainSteps = 1e-3;

}  // namespace

void PrefillLoad::age(TimePoint now) {
  const double kept = std::exp(-std::max(0.0, to_seconds(now - aged_) / to_seconds(kMeasured)));
  for (double* sum : {&prompt_seconds_, &answer_steps_, &plain_steps_, &plain_seconds_})
    *sum *= kept;
  aged_ = std::max(aged_, now);
}

void PrefillLoad::set(bool sends) {
  if (sends != sends_) role_->count_sending_rank(sends);
  sends_ = sends;
}

void PrefillLoad::note_prompt(Duration to_compute, int num_answers, TimePoint now) {
  age(now);
  prompt_seconds_ += to_seconds(to_compute);
  decide(num_answers, now);
}

void PrefillLoad::note_answers(Duration took, TimePoint now) {
  age(now);
  answer_steps_ += 1;
  plain_steps_ += 1;
  plain_seconds_ += to_seconds(took);
}

void PrefillLoad::note_mixed_step(TimePoint now) {
  age(now);
  answer_steps_ += 1;
}

bool PrefillLoad::sends_prompts(TimePoint now) {
  age(now);
  decide(0, now);
  const Disaggregation mode = role_->mode();
  return mode == Disaggregation::decode || (mode == Disaggregation::automatic && sends_);
}

void PrefillLoad::decide(int num_answers, TimePoint now) {
  if (role_->mode() != Disaggregation::automatic) {
    set(false);
    changed_.reset();
    return;
  }
  const bool has_answers = answer_steps_ >= kMinSteps && plain_steps_ >= kMinPlainSteps;
  const double step = has_answers ? plain_seconds_ / plain_steps_ : 0;
  const double delay = has_answers ? prompt_seconds_ / answer_steps_ : 0;
  const bool has_much = has_answers && delay >= step;
  const bool holds = has_answers && changed_ && now - *changed_ < kMeasured;
  if (has_much == sends_ || holds || (has_much && num_answers == 0)) return;
  set(has_much);
  changed_ = now;
  if (has_much)
    log::info(
        "changed: other services compute the prompts of this rank: here they would delay each "
        "token by {:.1f} ms, and a step without prompts takes {:.1f} ms (--disaggregation-mode "
        "auto)",
        1e3 * delay, 1e3 * step);
  else if (!has_answers)
    log::info(
        "changed: this rank computes its prompts itself, since it had no answers lately "
        "(--disaggregation-mode auto)");
  else
    log::info(
        "changed: this rank computes its prompts itself: they delay each token by {:.1f} ms, and a "
        "step without prompts takes {:.1f} ms (--disaggregation-mode auto)",
        1e3 * delay, 1e3 * step);
}

}  // namespace hocket
