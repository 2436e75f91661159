// The memory that the C library's heap has given out, to test what objects take.   Thread: one; no
// other may allocate meanwhile.
#pragma once

#include <malloc.h>

#include <cstdint>

namespace hocket {

// Returns its bytes; 0 with a sanitizer, which has a heap of its own.
inline int64_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace hocket
