#include "compute/kernels/backend.h"

#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {

Result<Backend> Backend::create(Isa isa, WorkerPool& workers, int64_t scratch_bytes) {
  Backend backend;
  backend.isa_ = isa;
  backend.workers_ = &workers;
  backend.products_ = &product_kernels(isa);
  backend.rows_ = &row_kernels(isa);
  backend.scratch_bytes_ = round_up(scratch_bytes, 64);
  HOCKET_TRY(backend.scratch_, Buffer::allocate(workers.size() * backend.scratch_bytes_));
  return backend;
}

}  // namespace hocket
