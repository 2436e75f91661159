// Dispatch and combine on one rank: nothing travels, so a start does the work and its wait only
// hands the result on.
//
//   dispatch   token rows t0 t1 t2 ...  ->  rows sorted by expert: e0: t1 t4 | e1: | e2: t0 t1 ...
//              (source order inside an expert), through int8 where ranks would send it so
//   combine    expert rows  ->  residual[t] += the tree of combine groups + shared experts,
//              its sums rounded as ranks would send them
//
// Source: docs/contracts/arithmetic.md, "combine groups".
#pragma once

#include <cstdint>
#include <vector>

#include "compute/moe/dispatcher.h"
#include "core/model_config.h"

namespace hocket {

class LocalDispatcher final : public Dispatcher {
 public:
  // combine_groups must divide num_experts.
  LocalDispatcher(const ModelConfig& model, int combine_groups);

  bool exchanges() const override { return false; }
  void begin_pass(const PassSpec&, int) override {}
  void dispatch_start(const ExchangeContext& context, Half& half) override;
  void dispatch_wait(const ExchangeContext& context, Half& half) override;
  bool more_waves(const Half&) const override { return false; }
  void combine_start(const ExchangeContext& context, Half& half) override;
  void combine_wait(const ExchangeContext& context, Half& half) override;
  void progress() override {}
  void progress_inside() override {}
  Result<void> status() const override { return {}; }

 private:
  int num_experts_;
  int top_k_;
  std::vector<int32_t> leaves_;  // the leaf of each expert
  float output_scale_;
};

}  // namespace hocket
