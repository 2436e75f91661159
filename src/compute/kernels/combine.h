// Moving rows to experts and back on one rank: gather by index, and the weighted sum of a token's
// expert rows.
#pragma once

#include <span>

#include "compute/kernels/backend.h"

namespace hocket {

// out[i, :] = x[rows[i], :].   Shapes: x [n, cols], out [rows.size(), cols], same type.
// Thread: engine; workers split rows.
void gather_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows, MatrixView out);

// residual[t, :] += sum over combine groups g, ascending, of round( part(t, g) ), where
//   part(t, g) = sum over slots s of t in g, ascending, of weights[t, s] * y[position[t, s], :]
// in fp32: the inner sum fma(weight, y, acc) from +0, the outer plain additions from +0, then
// (where there is one) the shared experts' row is added, then all that to the residual. The group
// of a slot is ids[t, s] / (num_experts / num_groups); round is to y's type (none in fp32). Shapes:
// y [rows, cols]; ids, position, weights [tokens, k]; shared, residual [tokens, cols] fp32. Source:
// docs/contracts/arithmetic.md, "combine groups".   Thread: engine; workers split tokens.
struct CombineCall {
  MatrixView y;
  View<const int32_t> ids;
  View<const int32_t> position;
  View<const float> weights;
  int num_experts = 0, num_groups = 1;
  View<const float> shared;  // no rows: none
  View<float> residual;
};
void combine_rows(Backend& backend, const CombineCall& call);

}  // namespace hocket
