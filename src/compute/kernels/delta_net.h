// Gated delta nets, for any mix of chunk rows and decode rows. A value head keeps a state S, a
// matrix [key_dim, value_dim]; token t decays it by exp(g), corrects it with its key and value, and
// reads it with its query:
//
//   S = exp(g[t]) * S;  S = S + k[t] (beta[t] * (v[t] - S^T k[t]))^T;  o[t] = S^T q[t]
//
// The sums run in another order, the same for a prompt and for one token: in blocks of kDeltaBlock
// tokens at absolute positions. A token reads the state at the last border and the tokens since
// then; the state itself is computed at borders only. So the bits of a token depend neither on how
// its rows were cut nor on whether it was generated, and a state can be kept at every border.
//
// For token i of a block, with S the state at the border where the block begins (c, D, exp and
// scalars are fp32). x + {sum} is a canonical product that starts from x: its k-blocks of tokens
// are added to x one by one.
//
//   q, k, v = silu of the convolution;  q = round(unit(q) * key_dim^-0.5);  k = round(unit(k))
//   c[i] = c[i-1] + g[i];  D[i][j] = exp(c[i] - c[j])
//   r = product(k[i], round(S)) * exp(c[i])
//       + {sum over j < i of round((k[i] . k[j]) * D[i][j]) * v'[j]}
//   v'[i] = round(beta[i] * (v[i] - r))
//   o = product(q[i], round(S)) * exp(c[i])
//       + {sum over j <= i of round((q[i] . k[j]) * D[i][j]) * v'[j]}
//   y = round(rms_norm(o) * silu(z[i]))
//
// and at the end of the block, n = 63:
//
//   S = S * exp(c[n]) + {sum over j of round(k[j] * D[n][j]) v'[j]^T}
//
// With channel_decay (KDA) each channel of a key has a g of its own, whose exp multiplies the row
// of S. c and exp then differ from channel to channel, so they stand inside the products. The
// kPanelN tokens of a panel, the first of which is f, share c[f-1] (+0 for f = 0), so that every
// exponent is at most 0:
//
//   score(x, i, j) = round(x * exp(c[i] - c[f-1])) . round(k[j] * exp(c[f-1] - c[j]))  for j < f
//                    x . round(k[j] * exp(c[i] - c[j]))                                for j >= f
//   r = product(round(k[i] * exp(c[i])), round(S)) + {sum of round(score(k[i], i, j)) * v'[j]}
//   o = product(round(q[i] * exp(c[i])), round(S)) + {sum of round(score(q[i], i, j)) * v'[j]}
//   y = round(rms_norm(o) * sigmoid(z))
//
// Source: docs/contracts/arithmetic.md, "Gated delta nets".
#pragma once

#include <span>

#include "compute/kernels/backend.h"
#include "compute/kernels/delta_state.h"

namespace hocket {

// Shapes: x [rows, channels + value_columns]: q, k, v, z; gates [rows, gate_columns]: b, a; both
// sorted by key head if the config says so (`grouped`); with channel_decay a, b, where a and
// dt_bias have a number for each channel of each key head. taps [4][channels], the oldest row
// first; a_log, dt_bias [value heads]; norm [value_dim]; out [rows, value_columns] of the type of
// activations.
struct DeltaNetCall {
  View<const float> x, gates;
  std::span<const float> taps, a_log, dt_bias, norm;
  float norm_eps = 0;
  DeltaLayer layer;
  std::span<const DeltaSequence> sequences;
  MatrixView out;
};
// Errors: none; shapes are checked.   Thread: engine; workers take (sequence, key head).
// Bits: equal in every body.
void delta_net(Backend& backend, const DeltaNetCall& call);
// The bytes and the operations (two a multiply-add) of one layer, on average over the tokens of a
// block: half of it is open. Rows and gates, which the products before have just written, are not
// counted.
struct DeltaNetWork {
  double block_bytes = 0;         // read by each sequence
  double state_bytes_of_row = 0;  // states that are read and written, and new blocks
  double operations_of_row = 0;
};
DeltaNetWork delta_net_work(const DeltaShape& shape);
// Returns the scratch bytes that one worker needs.
int64_t delta_net_scratch_bytes(const DeltaShape& shape);

}  // namespace hocket
