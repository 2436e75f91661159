// Counts how often drafts are accepted. The acceptance of a position is the share of drafts there
// that were accepted, among those whose drafts before it were accepted. A request is judged by its
// own drafts and, while they are few, by those of all requests (the group). If the group's last
// drafts were accepted much more often or less than those before, these are forgotten. Pure
// arithmetic; nothing allocates after construction.
#pragma once

#include <array>
#include <vector>

#include "policy/speculation/drafter.h"
#include "policy/speculation/gate_state.h"

namespace hocket {

class Acceptance {
 public:
  explicit Acceptance(int num_seats) : own_(static_cast<size_t>(num_seats)) {}

  void begin(int seat) { own_[static_cast<size_t>(seat)] = {}; }
  // Notes that the first `num_accepted` of `num_drafts` drafts were accepted; drafts behind the
  // first that failed do not count.
  void note(int seat, int kind, int num_drafts, int num_accepted);
  // Returns the expected acceptance at `position`, in [0, 1).
  double of(int seat, int kind, int position) const;
  // Returns by how much the acceptance may be higher than measured, if few drafts were verified.
  double doubt(int kind, int position) const;
  // Sets the acceptance that `state` tells.
  void copy_to(GateState& state) const;

 private:
  struct Tally {
    float tried = 0, accepted = 0;
  };
  using Tallies = std::array<std::array<Tally, kMaxDrafts>, kDraftKinds>;
  struct Share {
    double share = 0, weight = 0;
  };
  Share group(int kind, int position) const;
  const Tally& tally(int kind, int position) const {
    return group_[static_cast<size_t>(kind)][static_cast<size_t>(position)];
  }

  bool has_changed(size_t row, size_t position) const;
  void forget_before(size_t row, size_t position);

  Tallies group_{}, recent_{};  // all requests'; recent_ forgets sooner
  std::vector<Tallies> own_;
};

}  // namespace hocket
