// How far a rank is with loading the experts for an epoch, and why it could not. Owner:
// ExpertMover, whose mutex guards it.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "core/rank_set.h"

namespace hocket {

class EpochLoading {
 public:
  // The experts for `ranks` are there.
  explicit EpochLoading(const RankSet& ranks) : ranks_(ranks) {}

  // Begins for an epoch of `ranks`. Returns false if their experts are there, or being loaded.
  bool begin(const RankSet& ranks, TimePoint now);
  // All have been loaded.
  void finish() { is_done_ = true, is_under_way_ = false; }
  // The epoch is over, and what was under way is given up.
  void end() { is_done_ = is_under_way_ = false; }
  const RankSet& ranks() const { return ranks_; }
  bool has_loaded(const RankSet& ranks) const { return is_done_ && ranks_ == ranks; }

  // An expert was loaded, or could not be loaded.
  void note_progress(TimePoint now) { progress_at_ = now; }
  // Returns since when nothing has arrived, if the loading is under way and was not given up.
  // last_came: when the last expert was loaded.
  std::optional<TimePoint> still_since(TimePoint last_came) const;

  // Notes why a layer could not be loaded, while it is tried again. Returns false if that is known.
  bool note_error(const Error& why);
  void clear_error() { last_error_.reset(); }
  // The last error is final: this rank can join no further epoch.
  void give_up() { final_error_ = last_error_; }
  void give_up(Error why) { final_error_ = last_error_ = std::move(why); }
  const std::optional<Error>& last_error() const { return last_error_; }
  const std::optional<Error>& final_error() const { return final_error_; }

 private:
  RankSet ranks_;  // the ranks of the epoch
  bool is_done_ = true, is_under_way_ = false;
  TimePoint progress_at_{};  // while it is under way: when it began, or the last failure
  std::optional<Error> last_error_, final_error_;
};

}  // namespace hocket
