// Compares the rates of the bf16 instruction of AVX-512 and of FMA.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/machine.h"

namespace hocket {
namespace {

// Independent sums, enough to keep all units busy in spite of their latency. A run takes several
// microseconds, longer than it takes to read a slow clock; several runs, so that one is
// undisturbed.
constexpr int kSums = 16, kLoops = 1000, kRuns = 12;
// The bf16 instruction multiplies twice as many numbers as an FMA. It counts as faster below this
// many times an FMA's time, so that noise cannot make it look faster where it takes twice the time.
constexpr double kFasterBelow = 1.5;

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

// Its time is that of reading the clock.
void run_nothing() {
  asm volatile("");
}

int64_t nanoseconds(void (*run)()) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

bool measure_rates() {
  if (!runs_here(Isa::avx512_bf16)) return false;
  int64_t fma = std::numeric_limits<int64_t>::max(), bf16 = fma, nothing = fma;
  for (int i = 0; i < kRuns; ++i) {
    nothing = std::min(nothing, nanoseconds(run_nothing));
    fma = std::min(fma, nanoseconds(run_fma));
    bf16 = std::min(bf16, nanoseconds(run_bf16));
  }
  return is_bf16_faster_than_fma(fma - nothing, bf16 - nothing);
}

}  // namespace

bool is_bf16_faster_than_fma(int64_t fma_ns, int64_t bf16_ns) {
  return fma_ns > 0 && static_cast<double>(bf16_ns) < kFasterBelow * static_cast<double>(fma_ns);
}

bool is_bf16_faster_than_fma() {
  static const bool faster = measure_rates();
  return faster;
}

}  // namespace hocket
