#include "engine/rank_drafts.h"

#include <utility>

#include "engine/step.h"

namespace hocket {
namespace {

// Returns null if there are no drafts. Sets by_module if the model's own module makes drafts.
std::unique_ptr<Speculation> make_speculation(const RankParts& parts, int rank, Runner& runner,
                                              DraftSources sources, ModuleDrafter*& by_module) {
  const SpeculationChoice& choice = parts.speculation;
  if (choice.max_drafts == 0) return nullptr;
  const int num_seats = parts.scheduler.max_running_requests;
  std::unique_ptr<Drafter> drafter, free;
  const auto of_text = [&] {
    return std::make_unique<NgramDrafter>(num_seats, std::move(sources.of_text));
  };
  if (parts.drafter) {
    drafter = parts.drafter(rank, num_seats);
  } else if (choice.by_module) {
    // A module that joins rows of the model only has none of its own to go on from.
    const int most = runner.info().model.local_mtp ? 1 : choice.max_drafts;
    auto own = std::make_unique<ModuleDrafter>(runner, num_seats, most);
    by_module = own.get();
    drafter = std::move(own);
    if (choice.by_text) free = of_text();
  } else {
    drafter = of_text();
  }
  return std::make_unique<Speculation>(Speculation::Options{.num_seats = num_seats,
                                                            .max_drafts = choice.max_drafts,
                                                            .fixed = choice.fixed,
                                                            .drafter = std::move(drafter),
                                                            .free = std::move(free),
                                                            .grammars = &sources.grammars});
}

}  // namespace

RankDrafts::RankDrafts(const RankParts& parts, int rank, Runner& runner, DraftSources sources)
    : gate_(make_speculation(parts, rank, runner, std::move(sources), module_)) {}

void RankDrafts::note_scheduled(const Batch& batch) {
  if (batch.num_answers() > 0) num_drafts_ = batch.num_drafts;
}

void RankDrafts::plan(const Batch& batch) {
  if (module_ != nullptr) module_->plan(batch, *gate_);
}

void RankDrafts::commit(const Flight& flight, TimePoint now,
                        std::optional<double> overlapped_share) {
  if (gate_ == nullptr) return;
  gate_->note(*flight.batch, now,
              {.rows = module_ != nullptr ? module_->computed() : FollowedRows{},
               .making = flight.drafting,
               .overlapped_share = overlapped_share});
  if (module_ != nullptr) module_->settle(flight, *gate_);
}

void RankDrafts::note_idle() {
  if (gate_ != nullptr) gate_->note_idle();
  if (module_ != nullptr) module_->drop();
}

void RankDrafts::forget(RequestId id) {
  if (gate_ != nullptr) gate_->forget(id);
}

}  // namespace hocket
