#include "engine/plan/state_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/show_bytes.h"
#include "engine/plan/tier_plan.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {
namespace {

// More slots are never planned, so that the ints that count them cannot overflow.
constexpr int64_t kMaxStates = 1 << 24;
// State slots for prefixes that are planned for each running request, if memory is short: a third
// of all slots. With fewer, conversations that wait for their next turn would lose their states.
constexpr int kPrefixesOfARequest = 1;

struct StateMemory {
  int64_t remaining_bytes = 0;  // without weights, work buffers and indexes of stores
  int64_t state_bytes = 0;      // the states' share of these
  int64_t request_bytes = 0;    // needed for one running request
};
StateMemory state_memory(const MemoryPlanInput& q, const MemoryPlan& plan) {
  const double asked = q.settings.memory.mamba_full_memory_ratio;
  const double ratio = asked > 0 ? asked : kDefaultStateRatio;
  const DeltaShape shape = delta_shape_of(q.model, q.dtype, plan.max_drafts);
  const int64_t remaining = std::max<int64_t>(
      0, plan.budget_bytes - plan.weight_bytes - plan.work_bytes - plan.index_bytes);
  return {
      .remaining_bytes = remaining,
      .state_bytes = static_cast<int64_t>(static_cast<double>(remaining) * (ratio / (1 + ratio))),
      .request_bytes = q.model.num_linear_layers() *
                       (shape.block_bytes() + kStatesOfARequest * shape.state_bytes())};
}

}  // namespace

void plan_states(const MemoryPlanInput& q, MemoryPlan& plan) {
  const int layers = q.model.num_linear_layers();
  if (layers == 0) return;
  const DeltaShape shape = delta_shape_of(q.model, q.dtype, plan.max_drafts);
  const auto [remaining, budget, request] = state_memory(q, plan);
  if (budget < request) {
    plan.state_bytes = request;
    return;
  }
  const int64_t state = layers * shape.state_bytes();
  const int64_t fitting = std::max<int64_t>(1, budget / (request + kPrefixesOfARequest * state));
  const auto running = static_cast<int>(std::min<int64_t>(plan.max_running_requests, fitting));
  const int asked_running = std::exchange(plan.max_running_requests, running);
  plan.num_blocks = running;
  const int64_t asked = q.settings.memory.max_total_tokens;
  const int64_t tokens = asked > 0 ? asked : int64_t{running} * plan.context_length;
  const int64_t cached = std::min((budget - running * request) / state, tokens / kDeltaBlock);
  plan.num_states =
      static_cast<int>(std::min<int64_t>(running * kStatesOfARequest + cached, kMaxStates));
  plan.state_bytes = StatePool::Sizes{shape, layers, plan.num_states, plan.num_blocks}.bytes();
  if (running < asked_running)
    plan.changes.push_back(
        {.flag = "--max-running-requests",
         .from = std::to_string(asked_running),
         .to = std::to_string(running),
         .why = fmt::format("each needs {} for the states of {} delta nets; {} more states are for "
                            "prefixes",
                            show_bytes(request), layers, cached)});
  // The rest of the share becomes pages.
  if (q.settings.memory.mamba_full_memory_ratio > 0 && plan.state_bytes + state <= budget)
    plan.changes.push_back(
        {.flag = "--mamba-full-memory-ratio",
         .from =
             fmt::format("{}, {}", q.settings.memory.mamba_full_memory_ratio, show_bytes(budget)),
         .to = show_bytes(plan.state_bytes),
         .why = fmt::format("{} tokens and {} requests can use {} states, not more", tokens,
                            running, plan.num_states)});
}

Error no_room_for_states(const MemoryPlanInput& q, const MemoryPlan& plan) {
  const auto [remaining, budget, request] = state_memory(q, plan);
  // The model fits: only the share of the states is too small.
  const std::string_view ratio =
      remaining > request ? "--mamba-full-memory-ratio 0, which plans it | " : "";
  return error(ErrorCode::out_of_memory,
               "the states of one request do not fit\n  weights {} + work buffers {} of {} leave "
               "{}, of which states get {}; one request needs {}",
               show_bytes(plan.weight_bytes), show_bytes(plan.work_bytes),
               show_bytes(plan.budget_bytes), show_bytes(remaining), show_bytes(budget),
               show_bytes(request))
      .with_fix(fmt::format("{}--quantization int4{} | a larger --mem-fraction-static", ratio,
                            smaller_index(q, plan)));
}

}  // namespace hocket
