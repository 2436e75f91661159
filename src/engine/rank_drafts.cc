#include "engine/rank_drafts.h"

#include <array>
#include <utility>

#include "engine/rank_parts.h"

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
    return std::make_unique<NgramDrafter>(num_seats, runner.info().context_length,
                                          std::move(sources.of_text));
  };
  if (parts.drafter) {
    drafter = parts.drafter(rank, num_seats);
  } else if (choice.by_module) {
    // A local module reads rows of the model before its final norm. It returns no such rows itself,
    // so each loaded module makes one draft.
    const ModelConfig& model = runner.info().model;
    const int most = model.local_mtp ? model.num_mtp_loaded : choice.max_drafts;
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
    : has_others_(runner.exchanges()),
      speculation_(make_speculation(parts, rank, runner, std::move(sources), module_)) {
  ended_.reserve(static_cast<size_t>(parts.scheduler.max_running_requests));
}

void RankDrafts::note_scheduled(const Batch& batch) {
  num_drafts_ = batch.num_drafts;
}

ModulePasses* RankDrafts::begin_passes(std::optional<std::span<const PassSpec>> agreed) {
  if (module_ == nullptr) return nullptr;
  const std::array<PassSpec, kMaxDrafts> alone{};
  const auto own = std::span(alone).first(static_cast<size_t>(num_passes()));
  ModulePasses& passes = module_->begin(agreed.value_or(own));
  // The first pass is for rows of the step before, in which another rank may have had prompts. Its
  // time counts here, too, if only other ranks have rows in it.
  if (agreed && !agreed->empty()) {
    if (agreed->front().phase == Phase::prefill)
      passes.followed = FollowedRows::prompts;
    else if (passes.followed == FollowedRows::none)
      passes.followed = FollowedRows::answers;
  }
  speculation_->note_followed(passes.followed);
  return passes.num_passes > 0 ? &passes : nullptr;
}

ModulePasses* RankDrafts::begin_passes_behind(const Flight& flight,
                                              std::optional<std::span<const PassSpec>> agreed) {
  if (module_ != nullptr) module_->settle_under_way(flight, *speculation_);
  return begin_passes(agreed);
}

void RankDrafts::plan(const Batch& batch) {
  if (module_ != nullptr) module_->plan(batch, *speculation_);
}

void RankDrafts::commit(const Flight& flight, TimePoint now,
                        std::optional<double> overlapped_share) {
  ended_.clear();
  if (speculation_ == nullptr) return;
  speculation_->note(
      *flight.batch, now,
      {.rows = flight.drafting.followed,
       .others_have_prompts = has_others_ && flight.agreed.pass.phase == Phase::prefill,
       .num_other_answers = flight.agreed.num_other_answers,
       .making = flight.drafting.took,
       .overlapped_share = overlapped_share});
  if (module_ != nullptr) module_->settle(flight, *speculation_);
}

void RankDrafts::note_idle() {
  if (speculation_ != nullptr) speculation_->note_idle();
  drop_passes();
  ended_.clear();
}

void RankDrafts::drop_passes() {
  if (module_ != nullptr) module_->drop();
}

void RankDrafts::end(std::unique_ptr<Request> request) {
  if (speculation_ != nullptr) speculation_->forget(request->id);
  if (module_ != nullptr) ended_.push_back(std::move(request));
}

}  // namespace hocket
