// The part of a memory plan that holds the states of delta nets. Pure. Thread: any.
#pragma once

#include "engine/plan/memory_plan.h"

namespace hocket {

// Plans the slots of states, once weights and work buffers are planned. Each running request needs
// a block slot, and a state slot beside the one of the prefix that it began with; further states
// serve the prefix cache, at most one for each border in the KV pages. So few requests run that at
// least a third of the states are for prefixes, unless one request takes more. If not even one
// fits, there are no slots, and state_bytes is what it needs.
void plan_states(const MemoryPlanInput& q, MemoryPlan& plan);

// Says that the states of one request do not fit, and what to change.
Error no_room_for_states(const MemoryPlanInput& q, const MemoryPlan& plan);

}  // namespace hocket
