// Prefetches of cache lines: far ahead into L2, near into L1.   Figures: docs/results.md
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "base/machine.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

inline void prefetch_l2(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1);
}
inline void prefetch_l1(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0);
}

// Calls body with true_type if the lines of a panel are to be fetched ahead. kIsShort: the body
// computes little for each line, as with one row; otherwise the processor's own prefetcher stops
// too early, so lines are asked for.
template <bool kIsShort, class Body>
inline void with_prefetch(Body&& body) {
  if constexpr (kIsShort)
    if (reads_one_stream_unaided()) return body(std::false_type());
  body(std::true_type());
}

}  // namespace
}  // namespace hocket::cpu
