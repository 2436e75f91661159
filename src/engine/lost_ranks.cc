#include "engine/lost_ranks.h"

#include <vector>

#include "base/log.h"

namespace hocket {

// The steps under way are undone: their rows are computed again when the ranks are connected again,
// with the same bits. Pages in the cache are those of steps that this rank has computed to the end,
// so they stay.
void LostRanks::handle(std::span<const Batch* const> uncommitted) {
  const auto& [clock, epochs, scheduler, answers] = context_;
  if (epochs.network()->can_rejoin() && timeout_.limit() > Duration{}) {
    timeout_.begin(clock.now());
    if (const int waiting = scheduler.undo_steps(epochs.why_lost(), clock.now()); waiting > 0)
      log::warning("rank {}: {} requests wait for the lost ranks, for at most {:.0f} s",
                   epochs.rank(), waiting, to_seconds(timeout_.limit()));
    return;
  }
  abort_live(FinishReason::error, epochs.why_lost());
  for (const Batch* batch : uncommitted) {
    const auto num_samples = static_cast<size_t>(batch->num_samples());
    const std::vector<SampledToken> none(num_samples, {.failed = true});
    scheduler.commit(*batch, none, clock.now());
  }
}

// A request that arrives while the ranks connect waits with the earlier ones. So does one on a
// rank that has just joined, and had none.
bool LostRanks::may_wait() {
  if (timeout_.under_way()) return true;
  if (timeout_.limit() == Duration{} || !context_.epochs.network()->serves_soon()) return false;
  timeout_.begin(context_.clock.now());
  return true;
}

void LostRanks::prolong(Duration loading) {
  if (!timeout_.prolong(loading) || context_.scheduler.idle()) return;
  log::warning("rank {}: requests wait up to {:.1f} s longer, while experts are loaded",
               context_.epochs.rank(), to_seconds(loading));
}

void LostRanks::end_if_over() {
  const bool has_failed = timeout_.under_way() && context_.epochs.network()->failure();
  if (!has_failed && !timeout_.is_over(context_.clock.now())) return;
  timeout_.end();
  abort_live(FinishReason::error, context_.epochs.why_lost());
}

void LostRanks::end_idle() {
  if (context_.scheduler.idle()) timeout_.end();
}

// Requests that wait for lost ranks end with the error of these, not with half an answer.
void LostRanks::abort_all(const Error& why) {
  if (timeout_.under_way()) return abort_live(FinishReason::error, context_.epochs.why_lost());
  abort_live(FinishReason::abort, why);
}

void LostRanks::abort_live(FinishReason reason, const Error& why) {
  for (const RequestId id : context_.answers.live()) context_.scheduler.abort(id, reason, why);
}

}  // namespace hocket
