#include "engine/step_recorders.h"

namespace hocket {
namespace {

// Both have the same fields.
template <class Options>
Options recording_options(const StepRecorders::Ranks& ranks, const Runner& runner,
                          const OrderTable* orders) {
  const Ledger::Limits limits{.num_layers = runner.info().model.num_layers, .num_ranks = ranks.num};
  return {.first_rank = ranks.first,
          .num_here = ranks.num_here,
          .num_ranks = ranks.num,
          .model = runner.info().served_model_name,
          .orders = orders,
          .spans_per_step = Ledger::max_spans(limits)};
}

}  // namespace

StepRecorders::StepRecorders(const Ranks& ranks, const Runner& runner)
    : orders_(runner.overlap().orders),
      profiler_(recording_options<Profiler::Options>(ranks, runner, orders_.get())),
      recent_(recording_options<RecentSteps::Options>(ranks, runner, orders_.get())) {}

}  // namespace hocket
