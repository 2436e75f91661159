// Loads the experts of the places with which an epoch begins.
#include <algorithm>

#include "base/log.h"
#include "compute/moe/balancer.h"
#include "engine/balance/expert_mover.h"

namespace hocket {

void ExpertMover::end_epoch() {
  moved();
  drop();
  last_ = runner_.placement();
  MutexLock lock(mutex_);
  epoch_.is_done = epoch_.is_under_way = false;
}

Duration ExpertMover::load_for_epoch(const RankSet& ranks) {
  {
    MutexLock lock(mutex_);
    if (epoch_.ranks == ranks && (epoch_.is_done || epoch_.is_under_way)) return {};
    epoch_.ranks = ranks;
    epoch_.is_done = false;
    epoch_.is_under_way = true;
    epoch_.progress_at = RealClock().now();
    task_ = Task::load_for_epoch;  // or what is under way for other ranks could count as this
  }
  changed_.notify_all();
  const auto bytes = static_cast<double>(max_lacking(ranks) * expert_bytes_);
  return from_seconds(seconds_per_byte() * bytes);
}

Placements ExpertMover::places_of(const RankSet& ranks) const {
  return ranks == RankSet::all(home_.first().num_ranks()) ? home_ : home_.among(ranks);
}

// Those that leave keep their experts, so nothing but replicas goes before they have left.
ExpertChanges ExpertMover::changes_without_others(const RankSet& stay) const {
  ExpertChanges changes;
  const Placements now = runner_.placement();
  const int num_experts = now.first().num_experts();
  for (int layer = 0; layer < std::ssize(has_experts_); ++layer) {
    if (!has_experts_[static_cast<size_t>(layer)]) continue;
    if (home_.at(layer).fewest_places(stay.size()) < num_experts) return {};
    const Placement wanted = home_.at(layer).among(stay);
    std::vector<std::vector<int>> experts;
    for (int rank = 0; rank < wanted.num_ranks(); ++rank) {
      const Placement& of = stay.has(rank) ? wanted : now.at(layer);
      experts.emplace_back(of.experts_of(rank).begin(), of.experts_of(rank).end());
    }
    Placement to = Placement::of_ranks(std::move(experts), num_experts);
    if (to.fingerprint() == now.at(layer).fingerprint()) continue;
    const int moves = num_moves(now.at(layer), to);
    changes.num_moves += moves;
    changes.layers.push_back({.layer = layer, .to = std::move(to), .num_moves = moves});
  }
  return changes;
}

// A rank that was absent has the experts of the start.
int64_t ExpertMover::max_lacking(const RankSet& ranks) const {
  const Placements to = places_of(ranks);
  int64_t most = 0;
  for (int rank = 0; rank < home_.first().num_ranks(); ++rank) {
    int64_t lacking = 0;
    for (int layer = 0; layer < std::ssize(has_experts_); ++layer) {
      if (!has_experts_[static_cast<size_t>(layer)]) continue;
      std::span<const int> held = last_.at(layer).experts_of(rank);
      if (held.empty()) held = home_.at(layer).experts_of(rank);
      lacking += std::ranges::count_if(to.at(layer).experts_of(rank), [&](int expert) {
        return !std::ranges::binary_search(held, expert);
      });
    }
    most = std::max(most, lacking);
  }
  return most;
}

void ExpertMover::note_progress() {
  MutexLock lock(mutex_);
  epoch_.progress_at = RealClock().now();
}

void ExpertMover::check_progress() {
  MutexLock lock(mutex_);
  const Duration still = RealClock().now() - epoch_.progress_at;
  if (!epoch_.is_under_way || epoch_.final_error || still < options_.max_expert_time) return;
  epoch_.final_error = epoch_.last_error =
      error(ErrorCode::lost_rank,
            "rank {} has waited {:.0f} s for an expert that it needs before the next step: the "
            "model's files do not answer",
            options_.rank, to_seconds(still))
          .with_fix("mend the storage of the model's files, and restart the rank");
}

bool ExpertMover::has_loaded(const RankSet& ranks) const {
  MutexLock lock(mutex_);
  return epoch_.is_done && epoch_.ranks == ranks;
}

void ExpertMover::load_places() {
  const TimePoint since = RealClock().now();
  RankSet ranks;
  ExpertMoveStats before;
  {
    MutexLock lock(mutex_);
    ranks = epoch_.ranks;
    before = stats_;
    epoch_.last_error.reset();
  }
  const Placements to = places_of(ranks);
  Retries retries(options_.max_retry_time);
  for (int layer = 0; layer < home_.num_layers(); ++layer)
    if (!load_layer_with_retries(layer, to.at(layer), retries)) return;
  {
    MutexLock lock(mutex_);
    if (task_ != Task::none) return;
    epoch_.is_done = true;
    epoch_.is_under_way = false;
  }
  log_loaded(ranks, before, since);
  if (options_.wake) options_.wake();
}

bool ExpertMover::load_layer_with_retries(int layer, const Placement& to, Retries& retries) {
  while (runner_.placement().at(layer).fingerprint() != to.fingerprint()) {
    if (is_superseded()) return false;
    auto back = load_layer(layer, to);
    if (back) {
      runner_.place(**back);
      reclaim(**back);
      stats_of_rows_.place(layer, to);
      retries.succeeded();
      MutexLock lock(mutex_);
      epoch_.last_error.reset();
      continue;
    }
    note_progress();
    source_.reset();  // the next try opens the files as they are then
    const Duration remaining = retries.failed(RealClock().now());
    note_load_error(back.error(), remaining);
    MutexLock lock(mutex_);
    if (remaining <= Duration{}) epoch_.final_error = epoch_.last_error;
    if (stops_ || remaining <= Duration{}) return false;
    changed_.wait_for(lock, std::min(remaining, Retries::kPause));
  }
  return true;
}

bool ExpertMover::is_superseded() const {
  MutexLock lock(mutex_);
  return stops_ || task_ != Task::none;
}

void ExpertMover::log_loaded(const RankSet& ranks, const ExpertMoveStats& before,
                             TimePoint since) const {
  const ExpertMoveStats now = stats();
  if (now.moves_total == before.moves_total) return;
  log::info("rank {}: loaded {} experts, {:.3g} GB, in {:.2f} s, for an epoch of the ranks {}",
            options_.rank, now.moves_total - before.moves_total,
            static_cast<double>(now.bytes_total - before.bytes_total) / 1e9,
            to_seconds(RealClock().now() - since), ranks.text());
}

// A reason is logged once, until another comes.
void ExpertMover::note_load_error(const Error& why, Duration remaining) {
  Error failure = error(ErrorCode::lost_rank,
                        "rank {} cannot load the experts that it needs before the next step: {}",
                        options_.rank, why.message)
                      .with_fix(why.fix.empty() ? "restart the server" : why.fix);
  {
    MutexLock lock(mutex_);
    if (stops_ || (epoch_.last_error && epoch_.last_error->message == failure.message)) return;
    epoch_.last_error = failure;
    stats_.last_error = why.message;
  }
  log::warning("{}; {}. It tries again for {:.0f} s", failure.message, failure.fix,
               to_seconds(remaining));
}

std::optional<Error> ExpertMover::last_load_error() const {
  MutexLock lock(mutex_);
  return epoch_.last_error;
}

std::optional<Error> ExpertMover::final_load_error() const {
  MutexLock lock(mutex_);
  return epoch_.final_error;
}

}  // namespace hocket
