// Compares the rates of the bf16 instruction of AVX-512 and of FMA.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/machine.h"

namespace hocket {
namespace {

// Independent sums, enough to keep all units busy in spite of their latency; loops and runs are so
// short and so many that some runs are undisturbed.
constexpr int kSums = 16, kLoops = 100, kRuns = 50;
// Each instruction multiplies twice as many numbers as an FMA. Where it takes twice the time,
// noise must not make it look faster.
constexpr double kLongestFaster = 1.5;

__attribute__((target("avx512f"))) void run_fma() {
  __m512 sums[kSums], a = _mm512_set1_ps(0.5f);
  for (auto& sum : sums) sum = a;
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, a, a);
      asm volatile("" : "+v"(sum));
    }
  }
}

__attribute__((target("avx512f,avx512bf16"))) void run_bf16() {
  __m512 sums[kSums], a = _mm512_set1_ps(0.5f);
  for (auto& sum : sums) sum = a;
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, a));
      asm volatile("" : "+v"(sum));
    }
  }
}

int64_t nanoseconds(void (*run)()) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool is_bf16_faster_than_fma() {
  static const bool faster = [] {
    if (!runs_here(Isa::avx512_bf16)) return false;
    int64_t fma = std::numeric_limits<int64_t>::max(), bf16 = fma;
    for (int i = 0; i < kRuns; ++i) {
      fma = std::min(fma, nanoseconds(run_fma));
      bf16 = std::min(bf16, nanoseconds(run_bf16));
    }
    return static_cast<double>(bf16) < kLongestFaster * static_cast<double>(fma);
  }();
  return faster;
}

}  // namespace hocket
