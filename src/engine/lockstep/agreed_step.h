// The step on which ranks have agreed, and how one of them plays it. Without other ranks it has its
// default values. Pure values.
#pragma once

#include <array>
#include <span>

#include "base/clock.h"
#include "compute/moe/dispatcher.h"
#include "compute/overlap/plan.h"
#include "policy/scheduler/batch.h"

namespace hocket {

struct AgreedStep {
  PassSpec pass;
  Plan plan;               // its parts and waves are those of the pass
  bool is_trial = false;   // the step is played only to measure the plan
  int rows = 0;            // rows that the votes expected, on the rank that has most
  Duration hung_after{};   // the time after which the rank counts as hung
  bool computes = false;   // some rank has rows
  bool extends = false;    // some rank computes rows of prompts
  bool may_begin = false;  // this rank may begin prompts
  // Steps should overlap from the next one on: the lead says so in its vote, and no rank says that
  // none should.
  bool steps_overlap = false;
  // The answers of the other ranks that share the step, and the drafts that those ranks had in the
  // last step.
  int num_other_answers = 0, num_other_drafts = 0;
  double overlapped_share = 1;  // as OverlapTiming::overlapped_share(), as the lead measured it
  // This rank stops after the step, because all ranks asked to stop, or because it may leave while
  // the others continue. It may leave if all of these are true:
  //   - its options allow it, and it asked to leave in an earlier agreement;
  //   - no rank has rows; or this rank has none, the others have its experts, and they can serve
  //     without it.
  bool ends = false;
  bool all_end = false;  // all ranks stop
  // Passes of the module that drafts: module_passes() returns the first num_module_passes.
  std::array<PassSpec, kMaxDrafts> passes_of_module;
  int num_module_passes = 0;

  // Returns the passes of the module that drafts, which all ranks play before the step: as many as
  // the rank plays that needs most. The first computes rows of the step before, and its rows travel
  // as in that step; each of the others computes one row of each answer.
  std::span<const PassSpec> module_passes() const {
    return std::span(passes_of_module).first(static_cast<size_t>(num_module_passes));
  }
};

}  // namespace hocket
