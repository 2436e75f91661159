// What other threads may see of the engine's ranks, gathered.
#include "engine/engine_state.h"

namespace hocket {

EngineStats Engine::stats() const {
  std::vector<RankStats> ranks;
  for (const auto& rank : state_->ranks) ranks.push_back(rank->stats());
  EngineStats all = add_up(std::move(ranks));
  if (state_->experts) all.experts = state_->experts->balance();
  if (state_->grammars) all.grammars = state_->grammars->stats();
  all.lost = state_->lost();
  return all;
}

std::vector<RankLoad> Engine::loads() const {
  return state_->loads();
}

OverlapView Engine::overlap() const {
  OverlapView view{.choice = info().overlap};
  for (const auto& rank : state_->ranks)
    view.ranks.push_back({.rank = rank->rank(), .stats = rank->overlap().stats()});
  view.planner = state_->ranks.front()->overlap().planner_state();
  return view;
}

SpeculationView Engine::speculation() const {
  const SpeculationInfo& settled = info().speculation;
  SpeculationView view;
  if (settled.most_drafts == 0) return view;
  view = {.algorithm = settled.algorithm, .most_drafts = settled.most_drafts, .ranks = {}};
  for (const auto& rank : state_->ranks)
    if (const Speculation* drafts = rank->speculation(); drafts != nullptr)
      view.ranks.push_back({.rank = rank->rank(), .gate = drafts->state()});
  return view;
}

std::vector<RequestAt> Engine::request_snapshots() const {
  std::vector<RequestAt> all;
  for (const auto& rank : state_->ranks)
    for (const RequestSnapshot& seen : rank->requests())
      all.push_back({.rank = rank->rank(), .seen = seen});
  return all;
}

}  // namespace hocket
