// Counts the allocations of a test program, to prove that a step makes none, and lets some fail, to
// prove that such a failure costs only one request. It replaces operator new, so one file of the
// program includes it, and never a file of a library. Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace hocket {
inline std::atomic<int64_t> num_allocations{0};
// n > 0 lets the n-th next allocation of the calling thread fail; 0 lets none fail.
inline thread_local int64_t failing_allocation = 0;
// Allocations of the calling thread that are larger than this fail.
inline thread_local size_t max_allocated_bytes = SIZE_MAX;

inline bool allocation_fails(size_t bytes) {
  return bytes > max_allocated_bytes || (failing_allocation > 0 && --failing_allocation == 0);
}
}  // namespace hocket

// noinline hides from the compiler that free() gets memory of new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++hocket::num_allocations;
  if (hocket::allocation_fails(bytes)) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  ++hocket::num_allocations;
  if (hocket::allocation_fails(bytes)) throw std::bad_alloc();
  const auto align = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (bytes + align) / align * align)) return memory;
  throw std::bad_alloc();
}
// The library's own nothrow version would call the one above. A sanitizer's would not, and its
// memory would reach our delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++hocket::num_allocations;
  if (hocket::allocation_fails(bytes)) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
