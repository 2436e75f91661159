// One of the (at most two) sub-batches that a step plays: a range of rows with its own attention
// plan and layer state. All are views into WorkBuffers; splitting and merging copy nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/forward/forward_batch.h"
#include "compute/forward/set_once.h"
#include "compute/forward/work_buffers.h"

namespace hocket {

inline constexpr int kMaxHalves = 2;

struct RowRange {
  int begin = 0, count = 0;
};

// The chosen experts of a half's rows, as views of WorkBuffers.
struct Routing {
  View<int32_t> ids;    // [rows, k], slots sorted by falling choice score
  View<float> weights;  // [rows, k]
  View<float> logits;   // [rows, experts]
};

// Rows sorted by expert: the half's own, or those of all ranks for the experts here. If rows travel
// in parts, x and y have the rows of one part, and the offsets those of one of its waves.
struct ExpertRows {
  MatrixView x, y;                   // [expert rows, hidden]: input and output
  std::span<const int32_t> offsets;  // [experts + 1]
  // [waves][experts + 1], if all waves have the same experts: their gate and up products are
  // computed with the first wave, so that these weights are read once. Empty in later waves.
  std::span<const int32_t> gate_up_offsets = {};
  bool gate_up_done = false;    // the gate and up products were computed with an earlier wave
  int first_expert = 0;         // number of the first of these experts on this rank
  View<int32_t> position = {};  // [rows, k]: place of slot s of row t; only for own rows
};

// The values that one operation of a layer leaves for a later one. It is empty at the end of every
// layer.
struct LayerState {
  SetOnce<MatrixView> q;           // attn_in -> attn_core
  SetOnce<MatrixView> normed;      // gate -> dispatch_start
  SetOnce<MatrixView> shared_x;    // gate -> shared
  SetOnce<View<float>> shared_y;   // shared -> combine_wait
  SetOnce<Routing> routing;        // gate -> combine_wait
  SetOnce<ExpertRows> dispatched;  // dispatch_start -> dispatch_wait
  SetOnce<ExpertRows> arrived;     // dispatch_wait -> experts; for each part
  SetOnce<ExpertRows> computed;    // experts -> combine_start; for each part
  SetOnce<ExpertRows> combining;   // combine_start -> combine_wait

  bool empty() const {
    return q.empty() && normed.empty() && shared_x.empty() && shared_y.empty() && routing.empty() &&
           dispatched.empty() && arrived.empty() && computed.empty() && combining.empty();
  }
};

struct Half {
  int index = 0;
  RowRange rows;
  AttentionPlan attention;
  std::span<const KvSlot> slots;
  // Models with sliding windows: the same for the window layers.
  AttentionPlan window_attention;
  std::span<const KvSlot> window_slots;
  std::vector<DeltaSequence> delta;  // models with delta nets only
  LayerState state;
};

}  // namespace hocket
