// The grids of IQ1, IQ2 and IQ3 blocks, as llama.cpp publishes them: a word holds the places, in a
// list of allowed numbers, of eight numbers of two bits or of four numbers of four bits, the first
// in the lowest bits. Private to the room.   Thread: any.
#pragma once

#include <cstdint>

namespace hocket {

extern const uint16_t kIq2XxsGrid[256];  // eight of 8, 25, 43
extern const uint16_t kIq2XsGrid[512];   // the same
extern const uint16_t kIq2SGrid[1024];   // the same
extern const uint16_t kIq3XxsGrid[256];  // four of 4, 12, 20, 28, 36, 44, 52, 62
extern const uint16_t kIq3SGrid[512];    // four of 1, 3, ... 15
extern const uint16_t kIq1Grid[2048];    // eight of -1, 0, 1

}  // namespace hocket
