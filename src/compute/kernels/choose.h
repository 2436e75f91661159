// Chooses bodies and task sizes by speed alone, since all bodies give the same bits.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/arithmetic/product.h"
#include "compute/kernels/kv_layout.h"
#include "core/model_config.h"

namespace hocket {

// Returns true if the vector bodies of bf16 multiply by VDPBF16PS, false if they use FMA: on the
// level avx512_bf16, and on a level with tiles where that is faster.
bool uses_vdpbf16ps(Isa isa);

// The shape of a product that workers share.
struct TaskShape {
  int panels = 0;
  int64_t panel_bytes = 0;
  int rows = 0;
  int num_workers = 0;
};
// Returns the panels that one task takes: few enough that workers end together (neighbour_tasks.h),
// and an even number, so that gate and up stay together.
int panels_per_task(const TaskShape& of);
// Returns the rows that one task takes: all, or fewer if the panels alone would leave workers idle.
int rows_per_task(int panel_tasks, int rows, int num_workers);
inline constexpr int kMaxTaskPanels = 32;
// fp32 results that a task keeps in scratch for its next operation, at most. Their rows are one
// panel longer than they need to be: rows a multiple of 1,024 bytes apart would push each other out
// of the first cache.
inline constexpr int kTaskResults = 64 * (kMaxTaskPanels + 1) * kPanelN;

// Rows, quantized for integer weights, that one worker's scratch holds: at least kQuantizedRows,
// and more where their k is short, so that workers seldom wait for each other. quantized_bytes()
// returns their bytes.
inline constexpr int kQuantizedRows = 128;
int quantized_rows(int k, int groups);
// Returns the bytes from one quantized row to the next; operand_stride() says why they are padded.
int64_t quantized_stride(int k);
int64_t quantized_bytes(int k, int groups);
// Rows that are multiplied with some panels before the next panels: few enough to stay in cache.
inline constexpr int kIntegerRows = 128;

struct ScratchNeed {
  int max_rows = 0;  // rows of one step, from all ranks that send rows here
  int max_k = 0;     // largest inner dimension of any product
  int num_heads = 0;
  KvShape kv;
  DType dtype = DType::bf16;  // type of activations
  MlaConfig mla;              // set for models with latents
  int num_experts = 0;
  DeltaNetConfig delta_net;  // set for models with delta nets
  int local_heads = 0;       // set for models with local layers, as local_kv
  KvShape local_kv = {};
};
// Returns the bytes that Backend::create must reserve for each worker.
int64_t scratch_bytes_for(const ScratchNeed& need);

}  // namespace hocket
