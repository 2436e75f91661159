// The engine's functions that gather what its ranks show to other threads.
#include "engine/local_engine.h"

namespace hocket {

EngineStats LocalEngine::stats() const {
  std::vector<RankStats> ranks;
  for (const auto& rank : ranks_) ranks.push_back(rank->stats());
  EngineStats all = add_up(std::move(ranks));
  if (experts_) all.experts = experts_->balance();
  if (grammars_) all.grammars = grammars_->stats();
  all.lost = lost();
  if (control_ && !all.lost) all.missing_ranks = missing_ranks();
  return all;
}

std::string LocalEngine::missing_ranks() const {
  const ClusterView view = control_->view();
  if (!view.serves() || view.whole()) return {};
  return fmt::format("{} of {} ranks serve: {}", view.present().size(), view.members.size(),
                     missing(view));
}

OverlapView LocalEngine::overlap() const {
  OverlapView view{.choice = info().overlap};
  for (const auto& rank : ranks_)
    view.ranks.push_back({.rank = rank->rank(), .stats = rank->overlap().stats()});
  view.planner = ranks_.front()->overlap().planner_state();
  return view;
}

SpeculationView LocalEngine::speculation() const {
  const SpeculationInfo& settled = info().speculation;
  SpeculationView view;
  if (settled.max_drafts == 0) return view;
  view = {.algorithm = settled.algorithm, .max_drafts = settled.max_drafts, .ranks = {}};
  for (const auto& rank : ranks_)
    if (const Speculation* drafts = rank->speculation(); drafts != nullptr)
      view.ranks.push_back(
          {.rank = rank->rank(), .gate = drafts->state(), .counts = rank->stats().scheduler});
  return view;
}

std::vector<RequestStatus> LocalEngine::request_snapshots() const {
  std::vector<RequestStatus> all;
  for (const auto& rank : ranks_)
    for (const RequestSnapshot& seen : rank->requests())
      all.push_back({.rank = rank->rank(), .seen = seen});
  return all;
}

}  // namespace hocket
