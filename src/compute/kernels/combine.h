// Moves rows to experts and back: gather, and the weighted sum of a token's expert rows, either in
// one go on one rank or in parts if its experts are on several ranks.
#pragma once

#include <span>

#include "compute/kernels/backend.h"

namespace hocket {

inline constexpr int kMaxSlots = 64;  // experts a token may choose

// out[i, :] = x[rows[i], :].   Shapes: x [n, cols], out [rows.size(), cols], same type.
// Thread: engine; workers split rows.
void gather_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows, MatrixView out);
// out[i, :] = the row that starts at rows[i], with out's type.
void gather_rows(Backend& backend, std::span<const std::byte* const> rows, MatrixView out);

// residual[t, :] += sum over combine groups g, ascending, of round( part(t, g) ), where
//   part(t, g) = sum over slots s of t in g, ascending, of weights[t, s] * y[position[t, s], :]
// in fp32. The inner sum is fma(weight, y, acc) from +0, the outer sum plain additions from +0;
// the sum is multiplied by output_scale; then the shared experts' row (if any) is added, and the
// total is added to the residual. The group of a slot is ids[t, s] / (num_experts / num_groups);
// round is to y's type (none in fp32). Shapes: y [rows, cols]; ids, position, weights [tokens, k];
// shared, residual [tokens, cols] fp32. Source: docs/contracts/arithmetic.md, "combine groups".
// Thread: engine; workers split tokens.
struct CombineCall {
  MatrixView y;
  View<const int32_t> ids;
  View<const int32_t> position;
  View<const float> weights;
  int num_experts = 0, num_groups = 1;
  float output_scale = 1;
  View<const float> shared;  // no rows if there are no shared experts
  View<float> residual;
};
void combine_rows(Backend& backend, const CombineCall& call);

// The sums over one rank's experts: out[first[t] + j, :] = round( part(t, g) ) for the j-th group
// g, ascending, that has a slot in token t's list; part() is defined above. Slots with an id below
// 0 do not count. Shapes: y [rows, cols]; ids, position, weights [tokens, k]; first [tokens]; out
// [parts, cols] of y's type.   Thread: engine; workers split tokens.
struct PartialCombineCall {
  MatrixView y;
  View<const int32_t> ids;
  View<const int32_t> position;
  View<const float> weights;
  std::span<const int32_t> first;
  int group_size = 1;  // experts in a group; ids / group_size is the group
  MatrixView out;
};
void combine_partly(Backend& backend, const PartialCombineCall& call);

// Like combine_rows, but the rows lie in several places: the row of slot s of token t starts at
// rows[t, s] and has cols numbers of `dtype`. A null means no slot. Without weights every row has
// weight 1, so rows may be expert rows, or parts with one slot for each.
struct PlacedCombineCall {
  DType dtype = DType::bf16;
  View<const std::byte* const> rows;  // [tokens, k]
  View<const int32_t> ids;
  View<const float> weights;  // no rows: all 1
  int group_size = 1;
  float output_scale = 1;
  View<const float> shared;  // no rows if there are no shared experts
  View<float> residual;
};
void combine_placed(Backend& backend, const PlacedCombineCall& call);

}  // namespace hocket
