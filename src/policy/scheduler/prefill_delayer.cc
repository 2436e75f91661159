#include "policy/scheduler/prefill_delayer.h"

#include <algorithm>

namespace hocket {

bool PrefillDelayer::allows(std::span<const PrefillVote> votes) {
  const auto prefills = [](const PrefillVote& v) { return v.begins || v.continues; };
  const auto spared = [](const PrefillVote& v) { return v.decodes || v.continues; };
  const bool alike = std::ranges::all_of(votes, prefills) || std::ranges::none_of(votes, prefills);
  const bool delays = !alike && std::ranges::any_of(votes, spared) && num_delayed_ < max_passes_;
  num_delayed_ = delays ? num_delayed_ + 1 : 0;
  return !delays;
}

}  // namespace hocket
