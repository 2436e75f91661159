// Picks bodies by speed alone: all of them give the same bits.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/kv_layout.h"

namespace hocket {

// From this many rows on an AMX machine uses tiles; below, the vector body.
inline constexpr int kTileRows = 8;

// Panels that one task of a linear layer takes: enough tasks to balance, enough columns to stream.
int panels_per_task(int panels, int k_blocks, int rows, int num_workers);

struct ScratchNeed {
  int max_rows = 0;         // of one step
  int max_k = 0;            // largest inner dimension of any product
  int num_heads = 0;
  KvShape kv;
};
// What Backend::create must reserve for each worker.
int64_t scratch_bytes_for(const ScratchNeed& need);

}  // namespace hocket
