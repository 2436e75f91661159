#include "engine/rank_drafts.h"

#include <utility>

namespace hocket {

std::unique_ptr<Speculation> make_speculation(const RankParts& parts, int rank, Runner& runner,
                                              DraftSources sources, ModuleDrafter*& by_module) {
  const SpeculationChoice& choice = parts.speculation;
  if (choice.most_drafts == 0) return nullptr;
  const int num_seats = parts.scheduler.max_running_requests;
  std::unique_ptr<Drafter> drafter, free;
  const auto of_text = [&] {
    return std::make_unique<NgramDrafter>(num_seats, std::move(sources.of_text));
  };
  if (parts.drafter) {
    drafter = parts.drafter(rank, num_seats);
  } else if (choice.by_module) {
    // A module that joins rows of the model only has none of its own to go on from.
    const int most = runner.info().model.local_mtp ? 1 : choice.most_drafts;
    auto own = std::make_unique<ModuleDrafter>(runner, num_seats, most);
    by_module = own.get();
    drafter = std::move(own);
    if (choice.by_text) free = of_text();
  } else {
    drafter = of_text();
  }
  return std::make_unique<Speculation>(Speculation::Options{.num_seats = num_seats,
                                                            .most_drafts = choice.most_drafts,
                                                            .fixed = choice.fixed,
                                                            .drafter = std::move(drafter),
                                                            .free = std::move(free),
                                                            .grammars = &sources.grammars});
}

}  // namespace hocket
