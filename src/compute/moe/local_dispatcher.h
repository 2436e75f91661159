// Dispatch and combine on one rank: nothing travels, so a start does the work and its wait only
// hands it on.
//
//   dispatch   token rows t0 t1 t2 ...  ->  rows sorted by expert: e0: t1 t4 | e1: | e2: t0 t1 ...
//              (source order inside an expert)
//   combine    expert rows  ->  residual[t] += sum of combine groups + shared experts
//
// Source: docs/contracts/arithmetic.md, "combine groups".
#pragma once

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

// Thread: engine. Allocates nothing.
class LocalDispatcher {
 public:
  // combine_groups: 1 .. num_experts, a divisor of it.
  LocalDispatcher(const ModelConfig& model, int combine_groups);

  void dispatch_start(Backend& backend, WorkBuffers& work, Half& half) const;
  void dispatch_wait(Half& half) const;
  void combine_start(Half& half) const;
  void combine_wait(Backend& backend, WorkBuffers& work, Half& half) const;

 private:
  int num_experts_;
  int top_k_;
  int combine_groups_;
};

}  // namespace hocket
