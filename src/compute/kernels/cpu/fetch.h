// Prefetches of cache lines: far ahead into L2, near into L1.
#pragma once

#include <immintrin.h>

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

inline void fetch_far(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1);
}
inline void fetch_near(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0);
}

}  // namespace
}  // namespace hocket::cpu
