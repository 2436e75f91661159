#include "engine/pages/prefill_role.h"

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
  const MutexLock lock(mutex_);
  // Other ranks would refuse the next number, and so would not follow.
  if (last_.number >= RoleChange::kMaxNumber)
    return fail(error(ErrorCode::bad_value,
                      "the role cannot change any more, because the last change has the largest "
                      "number, {}",
                      RoleChange::kMaxNumber)
                    .with_fix("start all ranks of the service again, which begins at number 0"));
  change_to({.mode = mode, .number = last_.number + 1});
  return {};
}

Result<void> PrefillRole::take(const RoleChange& change) {
  HOCKET_TRY_VOID(check(change.mode));
  if (change.number > RoleChange::kMaxNumber)
    return fail(ErrorCode::bad_value, "a change has the number {}, and the largest is {}",
                change.number, RoleChange::kMaxNumber);
  const MutexLock lock(mutex_);
  if (last_.is_before(change)) change_to(change);
  return {};
}

RoleChange PrefillRole::last_change() const {
  const MutexLock lock(mutex_);
  return last_;
}

void PrefillRole::change_to(const RoleChange& change) {
  last_ = change;
  const Disaggregation before = mode_.exchange(change.mode);
  if (before != change.mode)
    log::info("changed: --disaggregation-mode {} -> {}: an admin asked for it",
              disaggregation_name(before), disaggregation_name(change.mode));
}

bool PrefillRole::takes_prompts() const {
  const Disaggregation mode = mode_;
  return mode == Disaggregation::prefill || mode == Disaggregation::automatic;
}

bool PrefillRole::sends_prompts() const {
  const Disaggregation mode = mode_;
  return mode == Disaggregation::decode ||
         (mode == Disaggregation::automatic && num_sending_ranks_ > 0);
}

}  // namespace hocket
