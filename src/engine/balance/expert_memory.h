// Memory for experts that a rank loads while it serves: slots planned at start, and the memory of
// experts that have left the rank. Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "compute/tensor/buffer.h"
#include "engine/plan/expert_places.h"

namespace hocket {

class ExpertMemory {
 public:
  // Memory for one expert.
  struct Slot {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  // Divides the planned memory into the slots that `plan` says.
  ExpertMemory(Buffer planned, const MovingMemory& plan);

  // Returns the smallest free slot of at least `bytes`; allocates one if none is so large.
  // Errors: out_of_memory.
  Result<Slot> take(int64_t bytes);
  // Takes the memory of an expert. If that was a slot, it has its own size again, which may be more
  // than the expert's.
  void give_back(Slot slot);
  // True if the byte is in memory that was planned or allocated here.
  bool owns(const std::byte* at) const;

 private:
  std::vector<Buffer> buffers_;
  std::vector<Slot> free_;
  std::map<const std::byte*, int64_t> bytes_;  // the size of each slot, by address
};

}  // namespace hocket
