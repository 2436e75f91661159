#include "engine/balance/epoch_loading.h"

#include <algorithm>

namespace hocket {

bool EpochLoading::begin(const RankSet& ranks, TimePoint now) {
  if (ranks_ == ranks && (is_done_ || is_under_way_)) return false;
  ranks_ = ranks;
  is_done_ = false;
  is_under_way_ = true;
  progress_at_ = now;
  return true;
}

std::optional<TimePoint> EpochLoading::still_since(TimePoint last_came) const {
  if (!is_under_way_ || final_error_) return std::nullopt;
  return std::max(progress_at_, last_came);
}

bool EpochLoading::note_error(const Error& why) {
  if (last_error_ && last_error_->message == why.message) return false;
  last_error_ = why;
  return true;
}

}  // namespace hocket
