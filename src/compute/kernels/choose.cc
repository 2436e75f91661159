#include "compute/kernels/choose.h"

#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/delta_net.h"
#include "compute/kernels/latent_attention.h"

namespace hocket {
namespace {

constexpr int kTasksPerWorker = 4;  // a worker that is delayed then costs a quarter of its share
constexpr int kPanelGroup = 2;      // gate and up stay in one task

// Weight bytes of one task: a few microseconds of reading, so that workers end together. Many rows
// take many microseconds by themselves and each task prepares them again, so such tasks take more
// panels.
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int kMinTaskPanels = 4;
constexpr int kManyRows = 9;
constexpr int64_t kManyRowsTaskBytes = 512 << 10;
constexpr int kMinManyRowsPanels = 8;
constexpr int kMinScaleGroup = 32;  // the smallest scale group of integer weights
constexpr int kRouterArrays = 3;    // arrays with one number per expert (TopKRow)

constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

constexpr int64_t kQuantizedBytes = 1 << 20;  // quantized rows in one worker's scratch
int64_t quantized_row_bytes(int k, int groups) {
  return quantized_stride(k) + groups * int64_t{sizeof(float) + sizeof(int32_t)};
}

}  // namespace

bool uses_vdpbf16ps(Isa isa) {
  return isa == Isa::avx512_bf16 || (isa > Isa::avx512_bf16 && is_bf16_faster_than_fma());
}

int panels_per_task(const TaskShape& of) {
  const bool many = of.rows >= kManyRows;
  const int tasks = of.num_workers == 1 ? 1 : of.num_workers * kTasksPerWorker;
  const auto even = [](int panels) { return ceil_div(panels, kPanelGroup) * kPanelGroup; };
  const auto some = static_cast<int>((many ? kManyRowsTaskBytes : kTaskBytes) / of.panel_bytes);
  const int least = many ? kMinManyRowsPanels : kMinTaskPanels;
  const int share = std::max(ceil_div(of.panels, tasks), many ? std::min(least, of.panels) : 1);
  return std::min({even(share), std::max(some / kPanelGroup * kPanelGroup, least), kMaxTaskPanels});
}

int rows_per_task(int panel_tasks, int rows, int num_workers) {
  if (num_workers == 1 || panel_tasks >= 2 * num_workers) return rows;
  const int groups = ceil_div(num_workers * kTasksPerWorker, panel_tasks);
  return ceil_div(ceil_div(rows, groups), kTileBlockRows) * kTileBlockRows;
}

int64_t quantized_stride(int k) {
  const int64_t bytes = round_up(k, kIntegerBlockK);
  return operand_stride(DType::int8, bytes) == bytes ? bytes : bytes + kIntegerBlockK;
}

int quantized_rows(int k, int groups) {
  const int64_t rows = kQuantizedBytes / quantized_row_bytes(k, groups);
  return std::max(kQuantizedRows, static_cast<int>(rows));
}

int64_t quantized_bytes(int k, int groups) {
  return round_up(quantized_rows(k, groups) * quantized_row_bytes(k, groups), 64);
}

int64_t scratch_bytes_for(const ScratchNeed& need) {
  const int k_blocks = ceil_div(need.max_k, kBlockK);
  const int64_t rows =
      need.dtype == DType::f32
          ? 0
          : std::max(kQuantizedBytes,
                     quantized_bytes(need.max_k, ceil_div(need.max_k, kMinScaleGroup)));
  const int64_t results = int64_t{kTaskResults} * size_of(DType::f32);
  const int64_t products = std::max(product_scratch_bytes(need.max_rows, k_blocks),
                                    scaled_product_scratch_bytes(need.max_k));
  const int64_t router = int64_t{kRouterArrays} * need.num_experts * size_of(DType::f32);
  const int64_t attention = need.kv.kind == KvShape::Kind::latent
                                ? latent_attention_scratch_bytes({.num_heads = need.num_heads,
                                                                  .nope_dim = need.mla.nope_dim,
                                                                  .rope_dim = need.mla.rope_dim,
                                                                  .value_dim = need.mla.value_dim,
                                                                  .kv = need.kv,
                                                                  .dtype = need.dtype})
                                : attention_scratch_bytes(need.num_heads, need.kv);
  const int64_t local =
      need.local_heads == 0 ? 0 : attention_scratch_bytes(need.local_heads, need.local_kv);
  const int64_t delta =
      need.delta_net.num_key_heads == 0 ? 0 : delta_net_scratch_bytes({need.delta_net, need.dtype});
  const int64_t sums = need.num_experts == 0 ? 0 : int8_sums_scratch_bytes(need.max_k);
  return std::max({rows + results + products, attention, local, router, delta, sums});
}

}  // namespace hocket
