// A plan of a small dense model, whose numbers a test sets.
#pragma once

#include "engine/plan/memory_plan.h"
#include "engine/plan/testing.h"

namespace hocket::testing {

inline ModelConfig model() {
  ModelConfig m;
  m.vocab_size = 1000;
  m.hidden_size = 64;
  m.num_layers = 2;
  m.num_heads = 4, m.num_kv_heads = 2, m.head_dim = 16;
  m.intermediate_size = 128;
  m.max_position_embeddings = 32768;
  m.layer_is_moe = {false, false};
  m.rope.rotary_dim = 16;
  return m;
}

// Returns all the memory that is planned.
inline int64_t used(const MemoryPlan& plan) {
  return plan.weight_bytes + plan.work_bytes + plan.state_bytes + plan.kv_bytes + plan.index_bytes;
}

struct PlanCase {
  ServerSettings settings;
  int64_t weight_bytes = 1 * kGb, page_bytes = 1'000'000, module_page_bytes = 0;
  int num_local_modules = 0;  // modules of the model that cannot be chained
  int64_t total_bytes = 10 * kGb, available_bytes = 8 * kGb, max_stored_bytes = 0;

  Result<MemoryPlan> plan() const {
    ModelConfig m = model();
    m.local_mtp = num_local_modules > 0;
    m.num_mtp_layers = num_local_modules;
    return plan_memory({.settings = settings,
                        .model = m,
                        .dtype = DType::bf16,
                        .weight_bytes = weight_bytes,
                        .page_bytes = page_bytes,
                        .module_page_bytes = module_page_bytes,
                        .max_stored_bytes = max_stored_bytes,
                        .total_bytes = total_bytes,
                        .available_bytes = available_bytes});
  }
};

}  // namespace hocket::testing
