// Row bodies on 512-bit registers, compiled with AVX-512 flags: this unit emits only its table.
// False positive of g++ 12 on the undefined registers of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "compute/kernels/cpu/avx512_lanes.h"
#include "compute/kernels/cpu/delta_rows.inl.h"

namespace hocket::cpu {

constinit const RowKernels kAvx512Rows = Rows<Lanes>::table<DeltaRows<Lanes>>(Isa::avx512);

}  // namespace hocket::cpu
