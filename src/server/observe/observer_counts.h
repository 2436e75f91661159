// Counts of the observer's work.
#pragma once

#include <cstdint>

namespace hocket {

// All counts begin at the start of the server.
struct ObserverCounts {
  uint64_t notes_lost = 0;  // notes that found no room
  uint64_t spans_sent = 0, spans_lost = 0;
  uint64_t requests_dumped = 0, requests_not_dumped = 0;
};

}  // namespace hocket
