// Counts of the second tier of the prefix cache (engine/cache_tier.h), as copies.
#pragma once

#include <cstdint>

namespace hocket {

struct CacheTierStats {
  uint64_t pages_written_total = 0;
  uint64_t pages_left_out_total = 0;  // not written: no buffer was free, or the disk failed
  uint64_t pages_read_total = 0;
  uint64_t reads_given_up_total = 0;  // requests that went on before all pages were read
  double read_seconds_total = 0;
  // Figures of the folder, which the ranks of a process share.
  int64_t files = 0, bytes = 0;
  uint64_t evicted_total = 0, damaged_total = 0;
};

}  // namespace hocket
