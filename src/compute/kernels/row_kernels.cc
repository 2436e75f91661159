#include "compute/kernels/row_kernels.h"

#include "base/check.h"

namespace hocket {

const RowKernels& row_kernels(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return ref::kRows;
    case Isa::avx2:
      return cpu::kAvx2Rows;
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::amx:
    case Isa::amx_emulated:
      return cpu::kAvx512Rows;
  }
  HOCKET_CHECK(false);
  __builtin_unreachable();
}

}  // namespace hocket
