// out[r, :] = table[ids[r], :] as fp32; numbers of integers under scales are rounded to bf16 first.
// The table is packed (n = vocabulary, k = hidden), so a tied head needs no second copy. Its format
// is f32, bf16, mxfp4, or one of integers. Errors: none; ids are checked against n.   Thread:
// engine.
#pragma once

#include <span>

#include "base/ids.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"

namespace hocket {

void embed(Backend& backend, std::span<const TokenId> ids, const PackedWeight& table,
           View<float> out);

}  // namespace hocket
