// The places of experts with which an epoch begins: those of the start if all ranks are there, else
// those of Placement::among(). A rank that was absent has the experts of the start. Owner:
// ExpertMover. Thread: engine, except where noted.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/moe/placement.h"
#include "core/rank_set.h"
#include "engine/balance/expert_changes.h"

namespace hocket {

class EpochPlaces {
 public:
  // home: the places of the start. has_experts: for each layer whether it has any.
  EpochPlaces(Placements home, std::vector<bool> has_experts);

  // Returns the places for an epoch of `ranks`. Thread: any.
  Placements of(const RankSet& ranks) const;
  int num_layers() const { return home_.num_layers(); }        // Thread: any.
  int num_ranks() const { return home_.first().num_ranks(); }  // Thread: any.
  // Notes the places with which an epoch ended.
  void note_end(Placements last) { last_ = std::move(last); }
  // Returns how many experts the rank that lacks most has to load for an epoch of `ranks`.
  int64_t max_lacking(const RankSet& ranks) const;
  // Returns the changes from `now` by which `stay` alone have all experts, as in their next epoch;
  // the other ranks keep theirs. There are none if `stay` have too few places. Thread: any.
  ExpertChanges changes_without_others(const Placements& now, const RankSet& stay) const;

 private:
  const Placements home_;
  const std::vector<bool> has_experts_;
  Placements last_;  // at the end of the last epoch
};

}  // namespace hocket
