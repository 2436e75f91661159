// What the observer did.
#pragma once

#include <cstdint>

namespace hocket {

// Since the start.
struct ObserverCounts {
  uint64_t notes_lost = 0;  // there was no room
  uint64_t spans_sent = 0, spans_lost = 0;
  uint64_t requests_dumped = 0, requests_not_dumped = 0;
};

}  // namespace hocket
