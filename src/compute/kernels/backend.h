// The things that an operation needs to run: the bodies for one instruction set, the workers, and
// scratch memory for each worker. Made once at start.   Thread: the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/machine.h"
#include "base/worker_pool.h"
#include "compute/tensor/buffer.h"

namespace hocket {

struct ProductKernels;  // product_kernels.h: the canonical product
struct RowKernels;      // row_kernels.h: norms, rotations, softmax, routing

class Backend {
 public:
  // scratch_bytes: for each worker; the largest need of any operation (scratch_bytes_for in
  // choose.h). Errors: out_of_memory.
  static Result<Backend> create(Isa isa, WorkerPool& workers, int64_t scratch_bytes);

  Isa isa() const { return isa_; }
  WorkerPool& workers() const { return *workers_; }
  const ProductKernels& products() const { return *products_; }
  const RowKernels& rows() const { return *rows_; }

  // Returns one worker's scratch, 64-byte aligned, with undefined contents. Asking for more than
  // scratch_bytes is a bug and aborts.
  template <class T>
  T* scratch(int worker, int64_t count) const {
    HOCKET_CHECK(count * static_cast<int64_t>(sizeof(T)) <= scratch_bytes_);
    return reinterpret_cast<T*>(scratch_.data() + worker * scratch_bytes_);
  }

 private:
  Backend() = default;
  Isa isa_ = Isa::ref;
  WorkerPool* workers_ = nullptr;
  const ProductKernels* products_ = nullptr;
  const RowKernels* rows_ = nullptr;
  Buffer scratch_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace hocket
