// One of the (at most two) sub-batches that a step plays: a range of rows with its own attention
// plan and layer state. Views into WorkBuffers; splitting and merging copy nothing.
#pragma once

#include <cstdint>
#include <span>

#include "compute/forward/forward_batch.h"
#include "compute/forward/once.h"
#include "compute/forward/work_buffers.h"

namespace hocket {

inline constexpr int kMaxHalves = 2;

struct RowRange {
  int begin = 0, count = 0;
};

// Chosen experts of a half's rows. Views of WorkBuffers.
struct Routing {
  View<int32_t> ids;    // [rows, k], slots in falling choice score
  View<float> weights;  // [rows, k]
  View<float> logits;   // [rows, experts]
};

// Rows sorted by expert: the half's own, or those of all ranks for the experts here; of rows that
// travel in parts, one part's.
struct ExpertRows {
  MatrixView x, y;                   // [expert rows, hidden]: in and out
  std::span<const int32_t> offsets;  // [experts + 1]
  int first_expert = 0;              // which of the experts here is the first of these
  View<int32_t> position = {};       // [rows, k]: where slot s of row t stands; own rows only
};

// What one operation of a layer leaves for a later one. Empty again at the end of every layer.
struct LayerState {
  Once<MatrixView> q;           // attn_in -> attn_core
  Once<MatrixView> normed;      // gate -> dispatch_start
  Once<MatrixView> shared_x;    // gate -> shared
  Once<View<float>> shared_y;   // shared -> combine_wait
  Once<Routing> routing;        // gate -> combine_wait
  Once<ExpertRows> dispatched;  // dispatch_start -> dispatch_wait
  Once<ExpertRows> arrived;     // dispatch_wait -> experts; of each part
  Once<ExpertRows> computed;    // experts -> combine_start; of each part
  Once<ExpertRows> combining;   // combine_start -> combine_wait

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
  LayerState state;
};

}  // namespace hocket
