#include "compute/kernels/choose.h"

#include <algorithm>

#include "compute/kernels/latent_attention.h"
#include "compute/kernels/product_bodies.h"
#include "compute/kernels/product_kernels.h"

namespace hocket {
namespace {

constexpr int kTasksPerWorker = 4;  // so that a worker held up elsewhere costs a quarter of a share
constexpr int kPanelGroup = 2;      // gate and up

// bf16 tiles (1 KiB) that stay in a core's L2 while the rows pass.
constexpr int kCachedTiles = 512;

constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace

int panels_per_task(int panels, int k_blocks, int rows, int num_workers) {
  const int tasks = num_workers == 1 ? 1 : num_workers * kTasksPerWorker;
  const int share = ceil_div(ceil_div(panels, tasks), kPanelGroup) * kPanelGroup;
  const int cached = std::max(2, kCachedTiles / k_blocks / 2 * 2);
  return std::min({share, kMaxTaskPanels, rows > cpu::kVectorRows ? cached : kMaxTaskPanels});
}

int rows_per_task(int panel_tasks, int rows, int num_workers) {
  if (num_workers == 1 || panel_tasks >= 2 * num_workers) return rows;
  const int groups = ceil_div(num_workers * kTasksPerWorker, panel_tasks);
  return ceil_div(ceil_div(rows, groups), cpu::kTileBlockRows) * cpu::kTileBlockRows;
}

int64_t scratch_bytes_for(const ScratchNeed& need) {
  const int k_blocks = static_cast<int>(round_up(need.max_k, kBlockK) / kBlockK);
  const int64_t products = round_up(product_scratch_bytes(need.max_rows, k_blocks), 64) +
                           int64_t{kTaskResults} * size_of(DType::f32);
  if (need.kv.kind == KvShape::Kind::heads)
    return std::max(products, attention_scratch_bytes(need.num_heads, need.kv));
  return std::max(products, latent_attention_scratch_bytes({.num_heads = need.num_heads,
                                                            .nope_dim = need.mla.nope_dim,
                                                            .rope_dim = need.mla.rope_dim,
                                                            .value_dim = need.mla.value_dim,
                                                            .kv = need.kv,
                                                            .dtype = need.dtype}));
}

}  // namespace hocket
