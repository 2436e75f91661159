// The tables that row_kernels() returns, and the reference bodies of whole operations.
#pragma once

#include "compute/kernels/row_kernels.h"

namespace hocket {
struct AttentionCall;
struct LatentAttentionCall;
class Backend;
}  // namespace hocket

namespace hocket::ref {
extern const RowKernels kRows;
// attention() and latent_attention() as their contracts define them, one query and one key at a
// time.
void attention(Backend& backend, const AttentionCall& call);
void latent_attention(Backend& backend, const LatentAttentionCall& call);
}  // namespace hocket::ref

namespace hocket::cpu {
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;
}  // namespace hocket::cpu
