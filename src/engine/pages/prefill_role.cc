#include "engine/pages/prefill_role.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/log.h"

namespace hocket {
namespace {

constexpr std::string_view kDisaggregationNames[] = {"null", "prefill", "decode", "auto"};

}  // namespace

std::string_view disaggregation_name(Disaggregation mode) {
  return kDisaggregationNames[static_cast<size_t>(mode)];
}

Result<Disaggregation> parse_disaggregation(std::string_view name) {
  for (size_t i = 0; i < std::size(kDisaggregationNames); ++i)
    if (name == kDisaggregationNames[i]) return static_cast<Disaggregation>(i);
  return fail(error(ErrorCode::bad_value,
                    "--disaggregation-mode {} is not one of null, prefill, decode, auto",
                    name.substr(0, 64))
                  .with_param("disaggregation-mode")
                  .with_fix("--disaggregation-mode null"));
}

Result<void> PrefillRole::check(Disaggregation mode) const {
  const bool is_automatic = mode == Disaggregation::automatic;
  if ((mode == Disaggregation::decode || is_automatic) && !options_.can_decode)
    return fail(error(ErrorCode::bad_value,
                      "--disaggregation-mode {} needs services that compute prompts",
                      disaggregation_name(mode))
                    .with_param("disaggregation-prefill-url")
                    .with_fix("start with --disaggregation-prefill-url HOST:8998"));
  if ((mode == Disaggregation::prefill || is_automatic) && !options_.can_prefill)
    return fail(error(ErrorCode::bad_value,
                      "--disaggregation-mode {} has to offer its pages at an address",
                      disaggregation_name(mode))
                    .with_param("kv-cache-listen")
                    .with_fix("start with --kv-cache-listen 0.0.0.0:8998"));
  return {};
}

Result<void> PrefillRole::set(Disaggregation mode) {
  HOCKET_TRY_VOID(check(mode));
  const Disaggregation before = mode_.exchange(mode);
  if (before != mode) {
    const MutexLock lock(mutex_);
    prompt_seconds_ = 0;
    has_much_ = false;
  }
  if (before != mode)
    log::info("changed: --disaggregation-mode {} -> {}: an admin asked for it",
              disaggregation_name(before), disaggregation_name(mode));
  return {};
}

bool PrefillRole::takes_prompts() const {
  const Disaggregation mode = mode_;
  return mode == Disaggregation::prefill || mode == Disaggregation::automatic;
}

bool PrefillRole::sends_prompts() const {
  const Disaggregation mode = mode_;
  return mode == Disaggregation::decode || (mode == Disaggregation::automatic && has_much_);
}

void PrefillRole::note_prompt(Duration to_compute, int num_answers, TimePoint now) {
  if (mode_ != Disaggregation::automatic) return;
  const MutexLock lock(mutex_);
  const double passed = std::max(0.0, to_seconds(now - noted_) / to_seconds(kMeasured));
  prompt_seconds_ = prompt_seconds_ * std::exp(-passed) + to_seconds(to_compute);
  noted_ = now;
  const double share = prompt_seconds_ / to_seconds(kMeasured);
  const bool had_much = has_much_;
  if (!had_much && share >= kMuch && num_answers > 0) {
    has_much_ = true;
    log::info(
        "changed: others compute the prompts of this service, which would take {:.0f} % of its "
        "time beside {} answers (--disaggregation-mode auto)",
        100 * share, num_answers);
  } else if (had_much && share < kLittle) {
    has_much_ = false;
    log::info(
        "changed: this service computes its prompts itself, which take {:.0f} % of its time "
        "(--disaggregation-mode auto)",
        100 * share);
  }
}

}  // namespace hocket
