// The tables that row_kernels() returns, and the reference bodies of whole operations.
#pragma once

#include "compute/kernels/row_kernels.h"

namespace hocket {
struct AttentionCall;
struct DeltaNetCall;
struct LatentAttentionCall;
class Backend;
}  // namespace hocket

namespace hocket::ref {
extern const RowKernels kRows;
// Operations as their contracts define them, one row and one key at a time.
void attention(Backend& backend, const AttentionCall& call);
void latent_attention(Backend& backend, const LatentAttentionCall& call);
void delta_net(Backend& backend, const DeltaNetCall& call);
}  // namespace hocket::ref

namespace hocket::cpu {
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;
}  // namespace hocket::cpu
