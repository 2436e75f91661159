// Picks bodies by speed alone: all of them give the same bits.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/kv_layout.h"
#include "compute/kernels/packed_weight.h"
#include "core/model_config.h"

namespace hocket {

// From this many rows on an AMX machine uses tiles; below, the vector body.
inline constexpr int kTileRows = 8;

// A product of `rows` rows that workers share.
struct TaskShape {
  int panels = 0;
  int64_t panel_bytes = 0;
  int rows = 0;
  int num_workers = 0;
};
// Panels that one task takes: so few that workers end together (neighbour_tasks.h). Even, so that
// gate and up stay together.
int panels_per_task(const TaskShape& of);
// Rows that one task takes: all, but fewer where the panels alone would leave workers idle.
int rows_per_task(int panel_tasks, int rows, int num_workers);
inline constexpr int kMaxTaskPanels = 32;
// fp32 results that a task keeps in scratch between a product and what follows it, at most.
inline constexpr int kTaskResults = 64 * kMaxTaskPanels * kPanelN;

// Rows quantized for integer weights that one worker's scratch holds: so many that weights read
// once are used by all of them, so few that they stay in its cache. And their bytes.
inline constexpr int kQuantizedRows = 128;
int64_t quantized_bytes(int k, int groups);

struct ScratchNeed {
  int max_rows = 0;  // of one step, of all ranks whose rows come to the experts here
  int max_k = 0;     // largest inner dimension of any product
  int num_heads = 0;
  KvShape kv;
  DType dtype = DType::bf16;  // of activations
  MlaConfig mla;              // of models with latents
  int num_experts = 0;
};
// What Backend::create must reserve for each worker.
int64_t scratch_bytes_for(const ScratchNeed& need);

}  // namespace hocket
