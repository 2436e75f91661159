// A Buffer owns big memory; nothing else does. The memory is zeroed, 64-byte aligned, on 2 MiB
// pages where the kernel allows it, and never moves. All buffers are allocated at start; a step
// only borrows views of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "compute/tensor/view.h"

namespace hocket {

class Buffer {
 public:
  Buffer() = default;
  // Errors: out_of_memory, with the size in GB.
  static Result<Buffer> allocate(int64_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Buffer(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Returns the elements from one row to the next of an operand of products: whole k-blocks, and no
// multiple of 512 bytes, since rows so far apart share a few sets of each cache.
int64_t operand_stride(DType dtype, int64_t cols);

// Lays out matrices one after another, with each row padded to whole k-blocks and each matrix to 64
// bytes. Run it once without memory to learn the size (bytes()), then once with the memory.
class Layout {
 public:
  Layout() = default;
  explicit Layout(std::byte* memory) : memory_(memory) {}

  MatrixView matrix(DType dtype, int64_t rows, int64_t cols);
  // A matrix whose rows are operands of products: operand_stride() apart.
  MatrixView operand(DType dtype, int64_t rows, int64_t cols);
  template <class T>
  T* array(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  int64_t bytes() const { return used_; }

 private:
  void* take(int64_t bytes);
  std::byte* memory_ = nullptr;
  int64_t used_ = 0;
};

}  // namespace hocket
