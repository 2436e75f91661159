// The gated delta net in `hocket bench kernels`, without the projections around it: decode of some
// sequences between two borders, and a prompt, whose rows make a state every 64 tokens.
#pragma once

#include <vector>

#include "base/result.h"
#include "bench/kernel_case.h"
#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

// The net of the shape hybrid (bench/dummy_shape.h).
inline constexpr DeltaNetConfig kBenchNet = {
    .num_key_heads = 16, .num_value_heads = 32, .key_dim = 128, .value_dim = 128};

// The backends must outlive the cases; their scratch has room for kBenchNet. Errors: out_of_memory.
Result<std::vector<KernelCase>> delta_net_cases(Backend& measured, Backend& ref);

}  // namespace hocket
