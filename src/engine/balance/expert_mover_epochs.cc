// Brings experts to the places with which an epoch begins.
#include <algorithm>

#include "base/log.h"
#include "engine/balance/expert_mover.h"

namespace hocket {

void ExpertMover::end_epoch() {
  moved();
  drop();
  MutexLock lock(mutex_);
  is_brought_ = is_bringing_ = false;
}

void ExpertMover::bring(const RankSet& ranks) {
  {
    MutexLock lock(mutex_);
    if (wanted_ == ranks && (is_brought_ || is_bringing_)) return;
    wanted_ = ranks;
    is_brought_ = false;
    is_bringing_ = true;
  }
  begin(Task::bring);
}

bool ExpertMover::has_brought(const RankSet& ranks) const {
  MutexLock lock(mutex_);
  return is_brought_ && wanted_ == ranks;
}

void ExpertMover::load_places() {
  const TimePoint since = RealClock().now();
  RankSet ranks;
  ExpertMoveStats before;
  {
    MutexLock lock(mutex_);
    ranks = wanted_;
    before = stats_;
    last_bring_error_.reset();
  }
  const bool is_home = ranks == RankSet::all(home_.first().num_ranks());
  const Placements to = is_home ? home_ : home_.among(ranks);
  Retries retries(options_.max_retry_time);
  for (int layer = 0; layer < home_.num_layers(); ++layer)
    if (!bring_layer(layer, to.at(layer), retries)) return;
  {
    MutexLock lock(mutex_);
    if (task_ != Task::none) return;
    is_brought_ = true;
    is_bringing_ = false;
  }
  log_brought(ranks, before, since);
  if (options_.wake) options_.wake();
}

bool ExpertMover::bring_layer(int layer, const Placement& to, Retries& retries) {
  while (runner_.placement().at(layer).fingerprint() != to.fingerprint()) {
    if (is_superseded()) return false;
    auto back = load_layer(layer, to);
    if (back) {
      runner_.place(**back);
      reclaim(**back);
      stats_of_rows_.place(layer, to);
      retries.succeeded();
      MutexLock lock(mutex_);
      last_bring_error_.reset();
      continue;
    }
    source_.reset();  // the next try opens the files as they are then
    const Duration left = retries.failed(RealClock().now());
    note_bring_error(back.error(), left);
    MutexLock lock(mutex_);
    if (left <= Duration{}) final_bring_error_ = last_bring_error_;
    if (stops_ || left <= Duration{}) return false;
    changed_.wait_for(lock, std::min(left, Retries::kPause));
  }
  return true;
}

bool ExpertMover::is_superseded() const {
  MutexLock lock(mutex_);
  return stops_ || task_ != Task::none;
}

void ExpertMover::log_brought(const RankSet& ranks, const ExpertMoveStats& before,
                              TimePoint since) const {
  const ExpertMoveStats now = stats();
  if (now.moves_total == before.moves_total) return;
  log::info("rank {}: loaded {} experts, {:.3g} GB, in {:.2f} s, for an epoch of the ranks {}",
            options_.rank, now.moves_total - before.moves_total,
            static_cast<double>(now.bytes_total - before.bytes_total) / 1e9,
            to_seconds(RealClock().now() - since), ranks.text());
}

// A reason is logged once, until another comes.
void ExpertMover::note_bring_error(const Error& why, Duration left) {
  Error failure = error(ErrorCode::lost_rank,
                        "rank {} cannot load the experts that it needs before the next step: {}",
                        options_.rank, why.message)
                      .with_fix(why.fix.empty() ? "restart the server" : why.fix);
  {
    MutexLock lock(mutex_);
    if (stops_ || (last_bring_error_ && last_bring_error_->message == failure.message)) return;
    last_bring_error_ = failure;
    stats_.last_error = why.message;
  }
  log::warning("{}; {}. It tries again for {:.0f} s", failure.message, failure.fix,
               to_seconds(left));
}

std::optional<Error> ExpertMover::last_bring_error() const {
  MutexLock lock(mutex_);
  return last_bring_error_;
}

std::optional<Error> ExpertMover::final_bring_error() const {
  MutexLock lock(mutex_);
  return final_bring_error_;
}

}  // namespace hocket
