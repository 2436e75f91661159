#include "engine/rank_drafts.h"

#include <utility>

namespace hocket {

std::unique_ptr<Speculation> make_speculation(const RankParts& parts, int rank, Runner& runner,
                                              DraftSources sources, ModuleDrafter*& by_module) {
  const SpeculationChoice& choice = parts.speculation;
  if (choice.most_drafts == 0) return nullptr;
  const int num_seats = parts.scheduler.max_running_requests;
  std::unique_ptr<Drafter> drafter;
  if (parts.drafter) {
    drafter = parts.drafter(rank, num_seats);
  } else if (choice.by_module) {
    auto own = std::make_unique<ModuleDrafter>(runner, num_seats, choice.most_drafts);
    by_module = own.get();
    drafter = std::move(own);
  } else {
    drafter = std::make_unique<NgramDrafter>(num_seats, std::move(sources.of_text));
  }
  return std::make_unique<Speculation>(Speculation::Options{.num_seats = num_seats,
                                                            .most_drafts = choice.most_drafts,
                                                            .fixed = choice.fixed,
                                                            .drafter = std::move(drafter),
                                                            .grammars = &sources.grammars});
}

}  // namespace hocket
