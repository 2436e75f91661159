// One table of row bodies for each instruction set (arithmetic/rows.h defines them).
#pragma once

#include "compute/kernels/arithmetic/rows.h"

namespace hocket {

// Returns the bodies of a level; amx and amx_emulated use those of avx512.
const RowKernels& row_kernels(Isa isa);

}  // namespace hocket
