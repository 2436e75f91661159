// Moves rows to experts and back: gather, and the weighted sum of a token's expert rows, either in
// one go on one rank or in parts if its experts are on several ranks.
#pragma once

#include <span>
#include <vector>

#include "compute/kernels/arithmetic/rows.h"
#include "compute/kernels/backend.h"

namespace hocket {

inline constexpr int kMaxSlots = 64;  // experts a token may choose

// out[i, :] = x[rows[i], :].   Shapes: x [n, cols], out [rows.size(), cols], same type.
// Thread: engine; workers split rows.
void gather_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows, MatrixView out);
// out[i, :] = the row that starts at rows[i], with out's type.
void gather_rows(Backend& backend, std::span<const std::byte* const> rows, MatrixView out);

// Returns the leaf of each expert in the tree of combine groups. The E experts are G groups of
// neighbours, and each group is a leaf. Where G = 2^v times an odd number, empty leaves follow each
// run of that many groups up to a power of two, so that each half, quarter, ... of the groups is a
// node. Shapes: [num_experts], ascending.
//
//   6 groups of 2    expert  0 1   2 3   4 5       6 7   8 9   10 11
//                    leaf     0     1     2    -    4     5      6    -
//
// num_groups divides num_experts and is at most kMaxCombineGroups.
std::vector<int32_t> combine_leaves(int num_experts, int num_groups);
inline constexpr int kMaxCombineGroups = 4096;
static_assert(2 * kMaxCombineGroups <= kMaxCombineLeaves);

// Adds the tree of combine groups of each token t to residual[t, :]. A leaf is
//   round( sum over its slots s of t, ascending, of weights[t, s] * y[position[t, s], :] )
// in fp32, by fma(weight, y, acc) from +0. A node over leaves [n 2^l, (n + 1) 2^l) is round(left +
// right); a leaf or node without a slot is empty, and its parent is the other child, unchanged:
//
//   leaf     0   1   2   3   4   5   6   7
//   slots    a           b   c       d            round(round(a + b) + round(c + d))
//
// The root plus +0 is multiplied by output_scale; then the shared experts' row (if any) is added,
// and the total is added to the residual. round is to y's type (none in fp32). Shapes: y [rows,
// cols]; ids, position, weights [tokens, k]; leaves [experts]; shared, residual [tokens, cols]
// fp32. Source: docs/contracts/arithmetic.md, "combine groups".   Thread: engine; workers split
// tokens.
//
// With int8_sums, round is to int8 with a scale (quantized_rows.h), of each y and of each sum of
// two or more, so that every sum can travel so:
//   leaf   weights[t, s] * int8(y[position[t, s], :]); of several slots, int8 of their sum
//   node   int8(left + right)
struct CombineCall {
  MatrixView y;
  View<const int32_t> ids;
  View<const int32_t> position;
  View<const float> weights;
  std::span<const int32_t> leaves;
  float output_scale = 1;
  View<const float> shared;  // no rows if there are no shared experts
  View<float> residual;
  bool int8_sums = false;
};
void combine_rows(Backend& backend, const CombineCall& call);

// The sums over one rank's experts: out[first[t] + j, :] is the j-th node, ascending, that has a
// slot in token t's list. Slots with an id below 0 do not count. `nodes` names the node of each
// slot by its first leaf. No two nodes of a token overlap, and all its slots of a node are here, so
// combine_placed() adds the sums of all ranks up to the same tree. Shapes: y [rows, cols]; ids,
// nodes, position, weights [tokens, k]; leaves [experts]; first [tokens]; out [sums, cols] of y's
// type, or [sums, quantized_columns(cols)] of int8.   Thread: engine; workers split tokens.
struct PartialCombineCall {
  MatrixView y;
  View<const int32_t> ids;
  View<const int32_t> position;
  View<const float> weights;
  View<const int32_t> nodes;
  std::span<const int32_t> first;
  std::span<const int32_t> leaves;
  MatrixView out;
};
void combine_partly(Backend& backend, const PartialCombineCall& call);

// Like combine_rows, but the rows lie in several places: the row of slot s of token t starts at
// rows[t, s] and has cols numbers of `dtype`; in int8 it is one of quantized_rows.h. A null means
// no slot. Without weights every row has weight 1, so rows may be expert rows, or sums of nodes
// with one slot for each, any of the node's.
struct PlacedCombineCall {
  DType dtype = DType::bf16;
  View<const std::byte* const> rows;  // [tokens, k]
  View<const int32_t> ids;
  View<const float> weights;  // no rows: all 1
  std::span<const int32_t> leaves;
  float output_scale = 1;
  View<const float> shared;  // no rows if there are no shared experts
  View<float> residual;
};
void combine_placed(Backend& backend, const PlacedCombineCall& call);

// Returns the scratch that a worker needs for sums in int8.
int64_t int8_sums_scratch_bytes(int64_t cols);

}  // namespace hocket
