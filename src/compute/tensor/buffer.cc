#include "compute/tensor/buffer.h"

#include <sys/mman.h>

#include <utility>

#include "base/show_bytes.h"

namespace hocket {
namespace {

constexpr int64_t kSetBytes = 512;  // rows so far apart share an eighth of the sets of a cache
constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::allocate(int64_t bytes) {
  if (bytes == 0) return Buffer();
  HOCKET_CHECK(bytes > 0);
  // Reserves more than needed so that the used part can start on a huge page; untouched address
  // space costs nothing.
  const int64_t reserved = bytes >= kHugePage ? round_up(bytes, kHugePage) + kHugePage : bytes;
  void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    return fail(error(ErrorCode::out_of_memory, "cannot reserve {} of memory",
                      show_bytes(static_cast<double>(bytes)))
                    .with_fix("stop other programs, or lower --mem-fraction-static"));
  }
  auto* data = static_cast<std::byte*>(start);
  if (bytes >= kHugePage) {
    auto address = reinterpret_cast<uintptr_t>(start);
    const auto aligned = static_cast<uintptr_t>(round_up(static_cast<int64_t>(address), kHugePage));
    if (aligned > address) munmap(start, aligned - address);
    const uintptr_t end = address + reserved;
    const uintptr_t used_end = aligned + round_up(bytes, kHugePage);
    if (end > used_end) munmap(reinterpret_cast<void*>(used_end), end - used_end);
    data = reinterpret_cast<std::byte*>(aligned);
    madvise(data, round_up(bytes, kHugePage), MADV_HUGEPAGE);
  }
  return Buffer(data, bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  munmap(data_, bytes_ >= kHugePage ? round_up(bytes_, kHugePage) : bytes_);
}

MatrixView Layout::matrix(DType dtype, int64_t rows, int64_t cols) {
  const int64_t stride = round_up(cols, kBlockK);
  return {take(rows * stride * size_of(dtype)), dtype, rows, cols, stride};
}

MatrixView Layout::operand(DType dtype, int64_t rows, int64_t cols) {
  const int64_t stride = operand_stride(dtype, cols);
  return {take(rows * stride * size_of(dtype)), dtype, rows, cols, stride};
}

int64_t operand_stride(DType dtype, int64_t cols) {
  const int64_t stride = round_up(cols, kBlockK);
  return stride * size_of(dtype) % kSetBytes == 0 ? stride + kBlockK : stride;
}

void* Layout::take(int64_t bytes) {
  const int64_t offset = used_;
  used_ += round_up(bytes, 64);
  return memory_ == nullptr ? nullptr : memory_ + offset;
}

}  // namespace hocket
